"""Retries and fallbacks: what an adapter's `errors` section means (seed 000).

A retry is the same plan with a new number and the time that is left. A fallback is another adapter
of the same tool, through every check again, once. Each is an attempt with a PENDING record and
events of its own.

Only an operation that may be done twice is retried: one that is idempotent by nature (GET), that
its tool declares idempotent, or that carries a key; or one of which nothing was sent. Nothing here
is random: waits double, and last longer only if the other side asks for it.
"""

from __future__ import annotations

from actum.adapters.attempt_report import AttemptReport
from actum.adapters.kinds import may_repeat, report_of
from actum.approvals.approval_stage import request_approval
from actum.capture.endings import conclude
from actum.capture.model import Cancelled, Capture, Exited
from actum.contract.model import Contract
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import Refused
from actum.evidence.records.error_event import Phase
from actum.execution import plan as planning
from actum.execution.attempt import run_attempt
from actum.execution.build_cache import Carry
from actum.execution.execution import Execution
from actum.execution.interpret import Interpretation, interpreted, output_digest
from actum.execution.preparation import Ready, prepare
from actum.execution.result import Attempt, FellBack
from actum.registry.model import AdapterKind, Entry, Fallback
from actum.value import replace, value

#: Outcomes that the tool caused. A limit, a violation or a cancellation is not retried.
_ERRORS = frozenset({Outcome.TOOL_ERROR, Outcome.PERMISSION_DENIED, Outcome.COMMAND_NOT_FOUND})


@value(kw_only=False)
class Ran:
    """The last attempt and what came of it; `meaning` if a retry was considered."""

    ready: Ready
    capture: Capture
    meaning: Interpretation | None = None


def prepared(execution: Execution, carry: Carry) -> Ready:
    """The contract made ready; through the fallback if the program itself is not installed."""
    contract = execution.contract
    try:
        return prepare(execution, contract, carry)
    except Refused as refusal:
        if refusal.code != "EXECUTABLE_MISSING":
            raise
        refused, known = refusal, execution.state()
        execution.log_error(refusal.code)
    adapter_id = execution.intent.adapter.adapter_id if execution.intent.adapter else None
    entry = execution.services.registry.entry(contract.tool_id, adapter_id)
    fallback = entry.adapter.fallback
    if fallback is None or fallback.condition != "on_not_found":
        raise refused
    try:
        ready = prepare(execution, _through(contract, fallback, execution), carry)
    except Refused as refusal:
        execution.log_error(refusal.code)
        execution.restore(known)
        raise refused from None
    execution.fell_back = FellBack(adapter_id=fallback.adapter_id, condition=fallback.condition)
    return ready


def carry_out(execution: Execution, ready: Ready, carry: Carry) -> Ran:
    """Run, retry and fall back. The earlier attempts are in `execution.history`."""
    adapter = ready.adapter
    if execution.fell_back or (adapter.retry.max_attempts == 1 and adapter.fallback is None):
        return Ran(ready, run_attempt(execution, ready))
    clock = execution.services.retry_clock
    deadline = clock.now() + ready.plan.policy.limits.timeout_ms / 1000
    capture = run_attempt(execution, ready)
    while True:
        ended = _ended(execution, ready, capture)
        wait_s, why = _pause(execution.contract, ready, ended, deadline - clock.now())
        execution.history += (_attempt(ready, ended, capture, why),)
        if wait_s is None:
            break
        _log_error(execution, ended)
        if not clock.wait(wait_s, execution.options.cancel):
            return Ran(ready, replace(capture, ending=Cancelled(0)))
        known = execution.state()
        try:
            left_ms = max(1, int((deadline - clock.now()) * 1000))
            ready, capture = _again(execution, ready, left_ms)
        except Refused as refusal:
            # The refusal prevents another attempt; the result of this one stands.
            execution.log_error(refusal.code)
            execution.restore(known)
            *earlier, last = execution.history
            execution.history = (*earlier, replace(last, why=refusal.code))
            return Ran(ready, capture, ended.meaning)
    ran = Ran(ready, capture, ended.meaning)
    if adapter.fallback is None or not _holds(adapter.fallback, ready.entry, ended, capture):
        return ran
    return _fallen_back(execution, ran, ended, adapter.fallback, carry)


@value(kw_only=False)
class _Ended:
    outcome: Outcome
    exit_code: int | None
    report: AttemptReport
    meaning: Interpretation


def _ended(execution: Execution, ready: Ready, capture: Capture) -> _Ended:
    contract, adapter = execution.contract, ready.adapter
    meaning = interpreted(contract, adapter, capture)
    verdict = conclude(contract.outputs, capture, meaning.problems)
    return _Ended(verdict.outcome, verdict.exit_code, report_of(adapter, capture), meaning)


def _log_error(execution: Execution, ended: _Ended) -> None:
    """An attempt failed, and another one follows. The last one is logged when it is sealed."""
    phase = Phase.OUTPUTS if ended.outcome is Outcome.OUTPUT_INVALID else None
    execution.log_error(PROJECTIONS[ended.outcome].reason or "", phase)


def _attempt(ready: Ready, ended: _Ended, capture: Capture, why: str) -> Attempt:
    return Attempt(
        attempt=ready.plan.trace.attempt,
        adapter_id=ready.plan.adapter.adapter_id,
        outcome=ended.outcome.value,
        code=ended.report.code,
        transport_failure=ended.report.transport_failure,
        duration_ms=capture.duration_ms,
        proof_sha256=ready.plan.proof.sha256,
        output_digest=output_digest(capture, ended.exit_code),
        why=why,
    )


def _pause(
    contract: Contract, ready: Ready, ended: _Ended, left_s: float
) -> tuple[float | None, str]:
    """(how long to wait before trying again, or None; why)."""
    retry, report = ready.adapter.retry, ended.report
    number = ready.plan.trace.attempt
    if ended.outcome is Outcome.SUCCEEDED:
        return None, ""
    if ended.outcome not in _ERRORS:
        return None, f"{ended.outcome} is not tried again"
    if not report.transport_failure and report.code not in retry.retryable_codes:
        return None, f"code {report.code} is not retryable"
    if number >= retry.max_attempts:
        return None, f"max_attempts {retry.max_attempts} reached"
    if not report.untouched and not may_repeat(contract, ready.entry, ready.operation):
        return None, f"{ready.operation} is not declared idempotent and carries no key"
    wait_s = max(retry.backoff_ms * 2 ** (number - 1) / 1000, report.retry_after_s or 0.0)
    if wait_s >= left_s:
        return None, "no time left"
    return wait_s, f"tried again after {int(wait_s * 1000)} ms"


def _again(execution: Execution, ready: Ready, left_ms: int) -> tuple[Ready, Capture]:
    """The same plan, under the next number and within the time that is left."""
    plan = planning.again(ready.plan, ready.plan.trace.attempt + 1, left_ms)
    execution.know(
        attempt=plan.trace.attempt,
        plan=plan,
        proof=plan.proof,
        policy=plan.policy,
        foreseen=ready.runner.foresee(plan.policy),
    )
    following = replace(ready, plan=plan)
    return following, run_attempt(execution, following)


def _holds(fallback: Fallback, entry: Entry, ended: _Ended, capture: Capture) -> bool:
    name, _, number = fallback.condition.partition(":")
    match name:
        case "on_error":
            return ended.outcome in _ERRORS or ended.outcome is Outcome.OUTPUT_INVALID
        case "on_timeout":
            return ended.outcome is Outcome.TIMED_OUT
        case "on_not_found":
            absent = entry.adapter.kind is AdapterKind.API and ended.report.code == 404
            return absent or ended.outcome is Outcome.COMMAND_NOT_FOUND
        case "exit_code":
            return capture.ending == Exited(int(number))
        case other:
            raise AssertionError(f"a condition {other} was loaded")


def _fallen_back(
    execution: Execution, ran: Ran, ran_as: _Ended, fallback: Fallback, carry: Carry
) -> Ran:
    """One attempt through the other adapter; if that is refused, `ran` stands."""
    known = execution.state()
    _log_error(execution, ran_as)
    fell_back = FellBack(adapter_id=fallback.adapter_id, condition=fallback.condition)
    try:
        execution.know(attempt=known.intent.attempt + 1)
        other = prepare(execution, _through(execution.contract, fallback, execution), carry)
        execution.know(input_digest=known.intent.input_digest)  # the request is the same
        capture = run_attempt(execution, other)
    except Refused as refusal:
        execution.log_error(refusal.code)
        execution.restore(known)
        approvals = execution.services.approvals
        refusal = request_approval(approvals, refusal, execution.intent, execution.trace)
        codes = dict.fromkeys(violation.code for violation in refusal.violations)
        execution.fell_back = replace(fell_back, refused=tuple(codes) or (refusal.code,))
        return ran
    execution.fell_back = fell_back
    ended = _ended(execution, other, capture)
    execution.history += (_attempt(other, ended, capture, "fallback"),)
    return Ran(other, capture, ended.meaning)


def _through(contract: Contract, fallback: Fallback, execution: Execution) -> Contract:
    """The same request for the other adapter: its program, or its operation."""
    entry = execution.services.registry.entry(contract.tool_id, fallback.adapter_id)
    command = contract.inputs.command
    if entry.adapter.cli is not None:
        command = entry.adapter.cli.executable
    elif command not in entry.adapter.operations and len(entry.adapter.operations) == 1:
        (command,) = entry.adapter.operations
    inputs = replace(contract.inputs, command=command)
    return replace(contract, adapter_id=fallback.adapter_id, inputs=inputs)
