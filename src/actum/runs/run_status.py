"""The states of a run, and the only moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    CORRECTING = "correcting"  #: a runtime correction is under way
    OPTIMIZING = "optimizing"  #: a heavy correction is under way
    VALIDATING = "validating"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: Claims without a new step after which a run is lost.
LOST_AFTER = 5

_ENDS = (RunStatus.FAILED, RunStatus.CANCELLED)

MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, *_ENDS}),
    RunStatus.RUNNING: frozenset(
        {
            *(RunStatus.CORRECTING, RunStatus.OPTIMIZING, RunStatus.VALIDATING),
            *(RunStatus.COMPLETE, *_ENDS),
        }
    ),
    RunStatus.CORRECTING: frozenset({RunStatus.RUNNING, RunStatus.VALIDATING, *_ENDS}),
    RunStatus.OPTIMIZING: frozenset(
        {RunStatus.RUNNING, RunStatus.VALIDATING, RunStatus.COMPLETE, *_ENDS}
    ),
    RunStatus.VALIDATING: frozenset(
        {RunStatus.RUNNING, RunStatus.OPTIMIZING, RunStatus.COMPLETE, *_ENDS}
    ),
    RunStatus.FAILED: frozenset({RunStatus.QUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.QUEUED}),
    RunStatus.COMPLETE: frozenset(),
}

#: A worker carries these out; a run in one of them has a worker.
AT_WORK = (
    RunStatus.RUNNING,
    RunStatus.CORRECTING,
    RunStatus.OPTIMIZING,
    RunStatus.VALIDATING,
)
ACTIVE = (RunStatus.QUEUED, *AT_WORK)
ENDED = (RunStatus.COMPLETE, *_ENDS)
#: Only these can be continued in place.
RESUMABLE = _ENDS


def may_move(before: RunStatus, after: RunStatus) -> bool:
    return before is after or after in MOVES[before]
