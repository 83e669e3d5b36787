"""Container engines for tests: Docker and Podman, started here and gone afterwards.

A process of this package, the *keeper*, starts an engine in a mount and a network namespace of its
own, with a data folder of its own, and without a registry. All workers of one test run share it.
The keeper ends the engine when the run ends or dies. The next start removes what is left of an
engine whose keeper was killed.
"""

from __future__ import annotations

from engines.engine import Engine, EngineError
from engines.registry import missing_programs, shared, stop_all

__all__ = ["Engine", "EngineError", "missing_programs", "shared", "stop_all"]
