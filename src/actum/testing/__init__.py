"""For users who test against Actum, or write a runner for it: fakes and the conformance suite.

Everything here is public. Nothing here imports a test framework: a check that fails raises
`AssertionError`, so any framework can run it.
"""

from __future__ import annotations

from actum.testing.clock import FixedClock
from actum.testing.conformance import CHECKS, RunnerConformance
from actum.testing.fakes import FakeRunner, captured

__all__ = ["CHECKS", "FakeRunner", "FixedClock", "RunnerConformance", "captured"]
