"""The check of a run's stored contract: by workers before a claim, and wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping

from actum.runs.contract.check import SUPPORTED, Flaw, Supported, flaw_in
from actum.runs.model import Run
from actum.store.keys import PublicKey


def stored_flaw(
    run: Run, trusted: Mapping[str, PublicKey], supported: Supported = SUPPORTED
) -> Flaw | None:
    """What is wrong with a run's stored contract; ``None`` if nothing is."""
    return flaw_in(run.contract, run.revision, run.seal, run.sealed, trusted, supported)
