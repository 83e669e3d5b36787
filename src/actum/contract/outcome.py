"""The closed set of outcomes, and each seed's word for every one of them.

Inside Actum there is one vocabulary. `PROJECTIONS` translates an outcome into each contract's
own words at its boundary; no contract ever sees a foreign word.
"""

from __future__ import annotations

from enum import StrEnum

from actum.value import value


class Outcome(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    TOOL_ERROR = "TOOL_ERROR"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    COMMAND_NOT_FOUND = "COMMAND_NOT_FOUND"
    EXCEPTION = "EXCEPTION"
    TIMED_OUT = "TIMED_OUT"
    RESOURCE_KILLED = "RESOURCE_KILLED"
    CANCELLED = "CANCELLED"
    POLICY_VIOLATION = "POLICY_VIOLATION"
    REJECTED = "REJECTED"
    ADMISSION_DENIED = "ADMISSION_DENIED"
    TESTS_FAILED = "TESTS_FAILED"
    OUTPUT_INVALID = "OUTPUT_INVALID"
    CONTRACT_MISMATCH = "CONTRACT_MISMATCH"
    UNSUPPORTED_CONTRACT = "UNSUPPORTED_CONTRACT"
    AUDIT_LOG_FAILED = "AUDIT_LOG_FAILED"
    WAITING = "WAITING"


class ToolRunStatus(StrEnum):
    """Seed 004."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    KILLED = "killed"


class ActionStatus(StrEnum):
    """Seed 001."""

    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    BLOCKED = "BLOCKED"
    PENDING = "PENDING"


class TraceOutcome(StrEnum):
    SUCCESS = "success"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"


class WorkStatus(StrEnum):
    """Seed 002."""

    SUCCESS = "success"
    FAILURE = "failure"
    DENIED = "denied"
    TIMEOUT = "timeout"


class RunStatus(StrEnum):
    """Seed 003, the states an execution can put a run into."""

    QUEUED = "queued"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@value(kw_only=False)
class Projection:
    """One outcome in five vocabularies; ``None`` where that contract has no word yet."""

    tool_run: ToolRunStatus | None  #: 004; ``None``: the runner was never called
    work: WorkStatus | None  #: 002; ``None``: still queued
    action: ActionStatus  #: 001
    reason: str | None  #: 001's reason code; ``None``: the refusal's own code
    trace: TraceOutcome | None
    run: RunStatus  #: 003


_ERROR, _FAILURE, _FAILED = ToolRunStatus.ERROR, WorkStatus.FAILURE, ActionStatus.FAILED
_BLOCKED, _DENIED = ActionStatus.BLOCKED, WorkStatus.DENIED


def _failed(reason: str, status: ToolRunStatus = _ERROR) -> Projection:
    return Projection(status, _FAILURE, _FAILED, reason, TraceOutcome.ERROR, RunStatus.FAILED)


def _blocked(status: ToolRunStatus | None, work: WorkStatus, reason: str | None) -> Projection:
    trace = TraceOutcome.DENIED if work is _DENIED else TraceOutcome.ERROR
    return Projection(status, work, _BLOCKED, reason, trace, RunStatus.FAILED)


PROJECTIONS: dict[Outcome, Projection] = {
    Outcome.SUCCEEDED: Projection(
        ToolRunStatus.SUCCESS,
        WorkStatus.SUCCESS,
        ActionStatus.SUCCESS,
        None,
        TraceOutcome.SUCCESS,
        RunStatus.COMPLETE,
    ),
    Outcome.TOOL_ERROR: _failed("TOOL_EXIT_NONZERO"),
    Outcome.PERMISSION_DENIED: _failed("TOOL_PERMISSION_DENIED"),
    Outcome.COMMAND_NOT_FOUND: _failed("TOOL_NOT_FOUND"),
    Outcome.EXCEPTION: _failed("EXECUTOR_EXCEPTION"),
    Outcome.TIMED_OUT: Projection(
        ToolRunStatus.TIMEOUT,
        WorkStatus.TIMEOUT,
        _BLOCKED,
        "EXECUTOR_TIMEOUT",
        TraceOutcome.TIMEOUT,
        RunStatus.FAILED,
    ),
    Outcome.RESOURCE_KILLED: _blocked(ToolRunStatus.KILLED, _FAILURE, "LIMIT_EXCEEDED"),
    Outcome.CANCELLED: Projection(
        ToolRunStatus.KILLED,
        _FAILURE,
        _BLOCKED,
        "CANCELLED",
        TraceOutcome.ERROR,
        RunStatus.CANCELLED,
    ),
    Outcome.POLICY_VIOLATION: _blocked(_ERROR, _DENIED, "POLICY_VIOLATION"),
    Outcome.REJECTED: _blocked(None, _DENIED, None),
    Outcome.ADMISSION_DENIED: _blocked(ToolRunStatus.SUCCESS, _DENIED, "ADMISSION_DENIED"),
    Outcome.TESTS_FAILED: _failed("TESTS_FAILED", ToolRunStatus.SUCCESS),
    Outcome.OUTPUT_INVALID: _failed("OUTPUT_INVALID", ToolRunStatus.SUCCESS),
    Outcome.CONTRACT_MISMATCH: _blocked(None, _DENIED, "CONTRACT_MISMATCH"),
    Outcome.UNSUPPORTED_CONTRACT: _blocked(None, _DENIED, "UNSUPPORTED_CONTRACT"),
    Outcome.AUDIT_LOG_FAILED: _blocked(None, _FAILURE, "AUDIT_LOG_FAILED"),
    Outcome.WAITING: Projection(None, None, ActionStatus.PENDING, None, None, RunStatus.QUEUED),
}
