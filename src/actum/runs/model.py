"""A run and its steps, as the ledger holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.runs.contract.seal import Sealed
from actum.runs.dispatch.port import Ticket
from actum.runs.run_status import RunStatus
from actum.value import fields, value


class StepKind(StrEnum):
    PLAN = "plan"
    ITEM = "item"
    LIGHT = "light"
    HEAVY = "heavy"
    CORRECTION = "correction"


class StepState(StrEnum):
    STARTED = "started"
    ENDED = "ended"
    ADOPTED = "adopted"  #: taken over from the run that this one was forked from


class StepStatus(StrEnum):
    """The end of a step: the words of a work item, and those of a validator."""

    SUCCESS = "success"
    FAILURE = "failure"
    DENIED = "denied"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"  #: its process died; nothing of it was committed
    PASSED = "passed"
    FAILED = "failed"


@value
class Run:
    """One row of `agent_runs`."""

    run_id: str
    status: RunStatus
    metadata: str  #: canonical JSON of the seven keys; ``{}`` in a legacy run
    revision: int  #: of the contract; 0 is a legacy run, never sealed
    seal: str | None
    source: str  #: the work file
    source_sha256: str
    plan: str | None
    plan_sha256: str | None
    epoch: int  #: + 1 per submit, continue and recovery of a lost run
    fence: int  #: + 1 per claim; a write under an older fence is refused
    worker: str | None  #: the process that carries the run out
    queue: str
    priority: int
    workspace: str
    base_state: str | None
    current_state: str | None
    validation_status: str | None
    forked_from: str | None
    resumed_at: int  #: number of steps when it was last continued: failures before it are retried
    requested_by: str
    trace_id: str
    cancel_by: str | None
    error_code: str | None
    error_details: str | None
    blocked_code: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    receipt_id: str | None

    @property
    def ticket(self) -> Ticket:
        return Ticket(
            run_id=self.run_id, epoch=self.epoch, queue=self.queue, priority=self.priority
        )

    @property
    def contract(self) -> Mapping[str, Any]:
        """The stored metadata; a value that is no mapping counts as a key of its own."""
        try:
            found = json.loads(self.metadata)
        except (ValueError, RecursionError):  # nested too deeply for the parser
            found = None
        return found if isinstance(found, dict) else {"metadata": None}

    @property
    def sealed(self) -> Sealed:
        """What the seal of this row has to state."""
        return Sealed(
            run_id=self.run_id,
            revision=self.revision,
            metadata=self.contract,
            source_sha256=sha256_bytes(self.source.encode("utf-8", "surrogatepass")),
            workspace_sha256=sha256_bytes(self.workspace.encode("utf-8", "surrogatepass")),
        )


@value
class Step:
    """One row of `agent_steps`."""

    run_id: str
    step_index: int
    kind: StepKind
    item_id: str | None
    attempt: int
    revision: int
    epoch: int
    fence: int
    worker: str
    state: StepState
    status: StepStatus | None = None
    codes: str = "[]"
    work_run_id: str | None = None  #: id of the work item's run, known before it begins
    base_state: str | None = None
    after_state: str | None = None
    receipt_id: str | None = None
    receipt_sha256: str | None = None
    signature: str | None = None  #: of a validation's findings
    blocking: int | None = None  #: how many findings block
    document: str | None = None
    started_at: str = ""
    ended_at: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state is StepState.STARTED

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(json.loads(self.codes))


RUN_COLUMNS = tuple(each.name for each in fields(Run))
STEP_COLUMNS = tuple(each.name for each in fields(Step))


def run_from(row: tuple[Any, ...]) -> Run:
    columns = dict(zip(RUN_COLUMNS, row, strict=True))
    columns["status"] = RunStatus(columns["status"])
    return Run(**columns)


def step_from(row: tuple[Any, ...]) -> Step:
    columns = dict(zip(STEP_COLUMNS, row, strict=True))
    columns["kind"] = StepKind(columns["kind"])
    columns["state"] = StepState(columns["state"])
    columns["status"] = None if columns["status"] is None else StepStatus(columns["status"])
    return Step(**columns)


def codes_text(codes: tuple[str, ...]) -> str:
    listed: list[Json] = list(codes)
    return json.dumps(listed)
