"""Trying again and falling back: what an adapter's `errors` section means (seed 000).

The runner runs once per call; here it is decided whether it is called again. A retry is the same
plan with a new number and the time that is left. A fallback is another adapter of the same tool,
through every check again, once. Each is an attempt with a PENDING record and events of its own.

Only what may be done twice is tried again: an operation that is so by nature (GET), that its tool
declares idempotent, or that carries a key; or one of which nothing was sent. Nothing here is
random: waits double, and last longer only if the other side asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from actum.adapters.kinds import may_repeat, told_by
from actum.adapters.told import Told
from actum.capture.interpret import conclude
from actum.capture.model import Cancelled, Capture, Exited
from actum.contract.call import Plan
from actum.contract.model import Contract
from actum.contract.outcome import Outcome
from actum.engine import plan as planning
from actum.engine.account import Account
from actum.engine.approvals import ApprovalRequired
from actum.engine.interpretation import output_digest
from actum.engine.result import Attempt, FellBack
from actum.errors import Refused
from actum.registry.model import Adapter, AdapterKind, Entry, Fallback
from actum.runners.base import Cancel, Runner
from actum.value import replace, value

#: Ends of a tool's own making. A limit, a violation or a caller's wish is no reason to go on.
_ERRORS = frozenset({Outcome.TOOL_ERROR, Outcome.PERMISSION_DENIED, Outcome.COMMAND_NOT_FOUND})


@value(kw_only=False)
class Ready:
    """A plan that may run, a runner that can hold it, and whose operation it is."""

    plan: Plan
    runner: Runner
    entry: Entry
    operation: str
    #: Whether a tool that is kept running carries it out: that tool's transaction has its changes.
    by_kept: bool = False

    @property
    def adapter(self) -> Adapter:
        return self.entry.adapter


Prepare = Callable[[Contract], Ready]
Run = Callable[[Ready], Capture]


def prepared(contract: Contract, account: Account, prepare: Prepare) -> Ready:
    """`contract` made ready; through the fallback if the program itself is not installed."""
    try:
        return prepare(contract)
    except Refused as refusal:
        if refusal.code != "EXECUTABLE_MISSING":
            raise
        refused, known = refusal, account.state()
    adapter_id = account.intent.adapter.adapter_id if account.intent.adapter else None
    entry = account.rooms.registry.entry(contract.tool_id, adapter_id)
    fallback = entry.adapter.fallback
    if fallback is None or fallback.condition != "on_not_found":
        raise refused
    try:
        ready = prepare(_through(contract, fallback, account))
    except Refused:
        account.restore(known)
        raise refused from None
    account.fell_back = FellBack(adapter_id=fallback.adapter_id, condition=fallback.condition)
    return ready


def carry_out(
    contract: Contract,
    ready: Ready,
    account: Account,
    *,
    run: Run,
    prepare: Prepare,
    cancel: Cancel | None,
) -> tuple[Ready, Capture]:
    """The last attempt and what came of it; the others are in `account.history`."""
    adapter = ready.entry.adapter
    if account.fell_back or (adapter.retry.max_attempts == 1 and adapter.fallback is None):
        return ready, run(ready)
    pace = account.rooms.pace
    deadline = pace.now() + ready.plan.policy.limits.timeout_ms / 1000
    capture = run(ready)
    while True:
        ended = _ended(account, ready, capture)
        wait_s, why = _pause(contract, ready, ended, deadline - pace.now())
        account.history += (_attempt(ready, ended, capture, why),)
        if wait_s is None:
            break
        if not pace.wait(wait_s, cancel):
            return ready, replace(capture, ending=Cancelled(0))
        known = account.state()
        try:
            left_ms = max(1, int((deadline - pace.now()) * 1000))
            ready, capture = _again(ready, account, left_ms, run)
        except Refused as refusal:
            # What changed meanwhile stands in the way of another attempt, not of this result.
            account.restore(known)
            *earlier, last = account.history
            account.history = (*earlier, replace(last, why=refusal.code))
            return ready, capture
    if adapter.fallback is None or not _holds(adapter.fallback, ready.entry, ended, capture):
        return ready, capture
    return _fallen_back(contract, ready, capture, account, run=run, prepare=prepare)


@value(kw_only=False)
class _Ended:
    outcome: Outcome
    exit_code: int | None
    told: Told


def _ended(account: Account, ready: Ready, capture: Capture) -> _Ended:
    _, problems = account.interpretation(ready.entry.adapter, capture)
    verdict = conclude(account.intent.contract.outputs, capture, problems)
    return _Ended(verdict.outcome, verdict.exit_code, told_by(ready.entry.adapter, capture))


def _attempt(ready: Ready, ended: _Ended, capture: Capture, why: str) -> Attempt:
    return Attempt(
        attempt=ready.plan.trace.attempt,
        adapter_id=ready.plan.adapter.adapter_id,
        outcome=ended.outcome.value,
        code=ended.told.code,
        transport_failure=ended.told.transport_failure,
        duration_ms=capture.duration_ms,
        proof_sha256=ready.plan.proof.sha256,
        output_digest=output_digest(capture, ended.exit_code),
        why=why,
    )


def _pause(
    contract: Contract, ready: Ready, ended: _Ended, left_s: float
) -> tuple[float | None, str]:
    """(how long to wait before trying again, or None; why)."""
    retry, told = ready.entry.adapter.retry, ended.told
    number = ready.plan.trace.attempt
    if ended.outcome is Outcome.SUCCEEDED:
        return None, ""
    if ended.outcome not in _ERRORS:
        return None, f"{ended.outcome} is not tried again"
    if not told.transport_failure and told.code not in retry.retryable_codes:
        return None, f"code {told.code} is not retryable"
    if number >= retry.max_attempts:
        return None, f"max_attempts {retry.max_attempts} reached"
    if not told.untouched and not may_repeat(contract, ready.entry, ready.operation):
        return None, f"{ready.operation} is not declared idempotent and carries no key"
    wait_s = max(retry.backoff_ms * 2 ** (number - 1) / 1000, told.retry_after_s or 0.0)
    if wait_s >= left_s:
        return None, "no time left"
    return wait_s, f"tried again after {int(wait_s * 1000)} ms"


def _again(ready: Ready, account: Account, left_ms: int, run: Run) -> tuple[Ready, Capture]:
    """The same plan once more, under the next number and within the time that is left."""
    plan = planning.again(ready.plan, ready.plan.trace.attempt + 1, left_ms)
    account.know(
        attempt=plan.trace.attempt,
        plan=plan,
        proof=plan.proof,
        policy=plan.policy,
        foreseen=ready.runner.foresee(plan.policy),
    )
    following = replace(ready, plan=plan)
    return following, run(following)


def _holds(fallback: Fallback, entry: Entry, ended: _Ended, capture: Capture) -> bool:
    name, _, number = fallback.condition.partition(":")
    match name:
        case "on_error":
            return ended.outcome in _ERRORS or ended.outcome is Outcome.OUTPUT_INVALID
        case "on_timeout":
            return ended.outcome is Outcome.TIMED_OUT
        case "on_not_found":
            absent = entry.adapter.kind is AdapterKind.API and ended.told.code == 404
            return absent or ended.outcome is Outcome.COMMAND_NOT_FOUND
        case "exit_code":
            return capture.ending == Exited(int(number))
        case other:
            raise AssertionError(f"a condition {other} was loaded")


def _fallen_back(
    contract: Contract,
    ready: Ready,
    capture: Capture,
    account: Account,
    *,
    run: Run,
    prepare: Prepare,
) -> tuple[Ready, Capture]:
    """One attempt through the other adapter; if that is refused, the result stands as it is."""
    fallback = ready.entry.adapter.fallback
    if fallback is None:
        raise AssertionError("there is nothing to fall back to")
    known = account.state()
    told = FellBack(adapter_id=fallback.adapter_id, condition=fallback.condition)
    try:
        account.know(attempt=account.intent.attempt + 1)
        other = prepare(_through(contract, fallback, account))
        account.know(input_digest=known.intent.input_digest)  # the same was asked
        again = run(other)
    except Refused as refusal:
        account.restore(known)
        if isinstance(refusal, ApprovalRequired):
            refusal = account.ask_for_approval(refusal)
        codes = dict.fromkeys(violation.code for violation in refusal.violations)
        account.fell_back = replace(told, refused=tuple(codes) or (refusal.code,))
        return ready, capture
    account.fell_back = told
    account.history += (_attempt(other, _ended(account, other, again), again, "fallback"),)
    return other, again


def _through(contract: Contract, fallback: Fallback, account: Account) -> Contract:
    """The same request in the words of the other adapter: its program, or its operation."""
    entry = account.rooms.registry.entry(contract.tool_id, fallback.adapter_id)
    command = contract.inputs.command
    if entry.adapter.cli is not None:
        command = entry.adapter.cli.executable
    elif command not in entry.adapter.operations and len(entry.adapter.operations) == 1:
        (command,) = entry.adapter.operations
    inputs = replace(contract.inputs, command=command)
    return replace(contract, adapter_id=fallback.adapter_id, inputs=inputs)
