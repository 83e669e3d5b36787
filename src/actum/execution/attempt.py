"""One attempt: answered from the result cache, or run by the runner behind the write-ahead record.

The runner prepares the sandbox, asks whether it may start, and starts the tool then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actum.approvals.approval_stage import request_commit, trace_use, using
from actum.capture.model import Capture
from actum.contract.call import Plan
from actum.contract.model import Determinism
from actum.evidence.records.facts import Stage
from actum.execution import transactions
from actum.execution.cached_answer import answer_cached, find_cached
from actum.execution.execution import Execution
from actum.execution.preparation import Ready


def run_attempt(execution: Execution, ready: Ready) -> Capture:
    plan = ready.plan
    if execution.contract.determinism is Determinism.D2 and find_cached(execution, plan):
        open_record(execution)
        return answer_cached(execution)
    execution.runner = ready.runner
    if not plan.policy.transaction or ready.by_kept:
        return _run(execution, plan, None)
    return transactions.run(
        plan,
        execution.services.settlement,
        partial(_run, execution),
        takes_overlay=ready.runner.takes_overlay,
        wanted=execution.options.changes,
        ask=partial(ask_to_commit, execution),
        made_ahead=execution.services.layer_folders,
    )


def _run(execution: Execution, plan: Plan, await_changes: Callable[[], None] | None) -> Capture:
    runner, options = execution.runner, execution.options
    assert runner is not None  # noqa: S101 -- set by `run_attempt`
    permit = partial(may_start, execution, await_changes)
    capture = runner.run(plan, execution.trace.emit, options.on_output, options.cancel, permit)
    execution.require_open(runner)
    return capture


def may_start(execution: Execution, await_changes: Callable[[], None] | None = None) -> None:
    """The runner's question. `await_changes` waits for commits that the tool must not miss."""
    open_record(execution)
    if await_changes is not None:
        await_changes()


def open_record(execution: Execution) -> None:
    """Put on record that the attempt is about to start; raises if it must not.

    Decisions of people are used up in the same transaction, once.
    """
    services, intent, granted = execution.services, execution.intent, execution.granted
    use = None
    if granted is not execution.used:
        approvals, standing = services.approvals, services.standing_approvals
        use = using(approvals, standing, granted, execution.used, intent)
    if execution.opened is None:
        execution.opened = services.ledger.write_ahead(intent, use)
    else:
        execution.opened = services.ledger.another_attempt(intent, use)
    execution.stage = Stage.RUNNER
    if use is not None:
        trace_use(granted, intent, execution.trace)
        execution.used = granted


def ask_to_commit(execution: Execution, name: str, diff_sha256: str) -> str:
    """File that changes of this execution wait for a decision; the request's id."""
    services = execution.services
    return request_commit(
        services.approvals,
        name,
        diff_sha256,
        execution.intent,
        execution.trace,
        services.clock(),
    )
