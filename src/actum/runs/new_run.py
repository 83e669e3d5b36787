"""New runs and new contracts of runs: resolved, hashed and sealed, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path

from actum.contract.canonical import canonical, sha256_bytes
from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.evidence.records.trace import rfc3339
from actum.runs.contract.material import VERSIONS, metadata_of
from actum.runs.contract.resolve import Resolved
from actum.runs.contract.seal import seal
from actum.runs.model import Run, Step, StepState
from actum.runs.plan_seal import planned_step, resealed
from actum.runs.run_status import RunStatus
from actum.store.keys import Signer
from actum.value import replace

_LETTERS = {
    "executionContractSchemaVersion": "s",
    "determinismPolicyVersion": "d",
    "plannerPolicyVersion": "p",
    "correctionRecipeVersion": "c",
    "validationPolicyVersion": "v",
}


def queue_of(versions: Mapping[str, Json] = VERSIONS) -> str:
    """The queue of a contract: workers serve the queues of the versions that they support, so an
    older worker does not fail a run that a newer one could do."""
    return "runs." + ".".join(f"{letter}{versions[name]}" for name, letter in _LETTERS.items())


def queues_of(supported: Mapping[str, Sequence[Json]]) -> tuple[str, ...]:
    """The queues of all contracts whose versions are supported."""
    names = list(_LETTERS)
    every = product(*(supported[name] for name in names))
    return tuple(queue_of(dict(zip(names, versions, strict=True))) for versions in every)


def new_run(
    source: str,
    resolved: Resolved,
    *,
    workspace: Path,
    requested_by: str,
    priority: int,
    at: datetime,
    signer: Signer,
) -> Run:
    """A run in the queue, with a sealed contract of revision 1."""
    run = Run(
        run_id=new_id(),
        status=RunStatus.QUEUED,
        metadata="{}",
        revision=0,
        seal=None,
        source=source,
        source_sha256=sha256_bytes(source.encode()),
        plan=None,
        plan_sha256=None,
        epoch=1,
        fence=0,
        worker=None,
        queue=queue_of(),
        priority=priority,
        workspace=str(workspace),
        base_state=None,
        current_state=None,
        validation_status=None,
        forked_from=None,
        resumed_at=0,
        requested_by=requested_by,
        trace_id=new_id(),
        cancel_by=None,
        error_code=None,
        error_details=None,
        blocked_code=None,
        created_at=rfc3339(at),
        started_at=None,
        ended_at=None,
        receipt_id=None,
    )
    return under_contract(run, resolved, signer)


def under_contract(run: Run, resolved: Resolved, signer: Signer) -> Run:
    """The same run under its next contract."""
    metadata = canonical(metadata_of(resolved)).decode()
    changed = replace(run, metadata=metadata, revision=run.revision + 1, queue=queue_of())
    return replace(changed, seal=seal(changed.sealed, signer))


def forked(
    source: Run,
    steps: Sequence[Step],
    resolved: Resolved,
    *,
    requested_by: str,
    at: datetime,
    signer: Signer,
) -> tuple[Run, tuple[Step, ...]]:
    """A new run that takes over the finished steps of another one."""
    ended = [step for step in steps if not step.is_open]
    fresh = new_run(
        source.source,
        resolved,
        workspace=Path(source.workspace),
        requested_by=requested_by,
        priority=source.priority,
        at=at,
        signer=signer,
    )
    run = replace(
        fresh,
        plan=source.plan,
        plan_sha256=source.plan_sha256,
        base_state=source.current_state,
        current_state=source.current_state,
        forked_from=source.run_id,
        resumed_at=len(ended),
    )
    # Numbered anew: an open step leaves a gap, and the next step's number is their count.
    planned = planned_step(ended)
    adopted = tuple(
        replace(
            step if step is not planned else resealed(step, run, signer),
            run_id=run.run_id,
            step_index=number,
            state=StepState.ADOPTED,
        )
        for number, step in enumerate(ended)
    )
    return run, adopted
