"""One execution from contract to receipt. Only this module knows the order of the stages.

    contract -> registry -> call -> policy and checks -> plan -> slot -> write-ahead -> runner
             -> interpretation -> seal -> result

Every arrow fails closed. A refusal on the way is sealed like any other outcome; a fault is sealed
as far as it can be and then raised. Nothing starts before the PENDING record is on the disk, and
no result is handed out before its signed receipt is.
"""

from __future__ import annotations

from functools import partial

from actum.approvals.approval_stage import request_approval
from actum.capture.endings import interpret
from actum.capture.model import Capture
from actum.contract.model import Contract, Determinism
from actum.contract.outcome import Outcome
from actum.determinism.second_run import check_claim, trace_determination
from actum.errors import Refused
from actum.evidence.records.facts import Stage, Tested
from actum.execution import snippet
from actum.execution.attempt import open_record
from actum.execution.build_cache import not_now
from actum.execution.cached_answer import store_result
from actum.execution.execution import Execution, Options, WorkStep, seal
from actum.execution.final_state import ended, failed, refused
from actum.execution.idempotency import recorded_answer
from actum.execution.interpret import Interpretation, interpreted, with_declared
from actum.execution.preparation import Ready
from actum.execution.result import Result
from actum.execution.retry import Ran, carry_out, prepared
from actum.execution.services import Services
from actum.golden.expected import differences
from actum.registry.given_permissions import GivenPermissions
from actum.registry.model import Adapter
from actum.runners.base import Cancel, OnOutput
from actum.runners.concurrency import Got, Queueing, Sharing, Turn
from actum.runners.lifecycle import never_started
from actum.value import replace


def execute(
    contract: Contract,
    services: Services,
    *,
    on_output: OnOutput | None = None,
    cancel: Cancel | None = None,
    trace_id: str | None = None,
    turn: Turn | None = None,
    parent_receipt: str | None = None,
    changes: str = "commit",
    work: WorkStep | None = None,
    ceiling: GivenPermissions | None = None,
) -> Result:
    """Carry out one contract, or say why not. Returns a Result for every outcome.

    `ceiling`: permissions of this run, at most those of the tool (`policy.ceiling`).
    """
    turn = turn or Queueing(services.concurrency, cancel, services.wait_s)
    options = Options(
        on_output=on_output, cancel=cancel, turn=turn, changes=changes, work=work, ceiling=ceiling
    )
    execution = Execution(
        contract, services, options, trace_id=trace_id, parent_receipt=parent_receipt
    )
    background_writer = services.ledger.background_writer
    background_writer.arrive()
    try:
        recorded = recorded_answer(contract, execution.intent.identity_sha256, services)
        if recorded is not None:
            return recorded
        ready = prepared(execution, partial(_compile, execution))
        execution.stage = Stage.WRITE_AHEAD
        with turn.place(contract) as got:
            ran = _run(execution, ready, got)
    except Refused as refusal:
        return seal_refusal(execution, refusal)[1]
    except BaseException as error:
        seal_failure(execution, error)
        raise
    else:
        return conclude(execution, ran.ready.adapter, ran.capture, ran.meaning)
    finally:
        background_writer.leave()
        execution.sealed_inputs.close()
        if execution.runner is not None:
            execution.runner.rest()  # it may now do what could wait for the record


def _run(execution: Execution, ready: Ready, got: Got) -> Ran:
    """Run the plan, unless the caller cancelled it while it waited for a slot."""
    if got is Got.CANCELLED:
        open_record(execution)  # received and cancelled is on record too
        kind, foreseen = ready.runner.kind, execution.intent.foreseen
        return Ran(ready, never_started(ready.plan, kind, execution.trace.emit, foreseen))
    if got is Got.AFTER_A_WAIT:  # what was judged may have changed meanwhile
        ready = prepared(execution, not_now)
        execution.stage = Stage.WRITE_AHEAD
    ran = carry_out(execution, ready, partial(_compile, execution))
    _check_determinism(execution, ran)
    return ran


def _check_determinism(execution: Execution, ran: Ran) -> None:
    """Check by a second run that a tool at level D2 repeats itself."""
    level = execution.contract.determinism
    if level is Determinism.D0 or execution.cached is not None:
        return
    found = check_claim(
        ran.ready.plan, ran.ready.runner, ran.capture, execution.options.cancel, level
    )
    execution.determination = found
    trace_determination(
        found, execution.intent, execution.trace, execution.elapsed_ms, execution.cache_key
    )


def conclude(
    execution: Execution,
    adapter: Adapter,
    capture: Capture,
    meaning: Interpretation | None = None,
) -> Result:
    """Interpret what came back, compare it with a golden output, and seal."""
    contract, services = execution.contract, execution.services
    capture = with_declared(contract.outputs, capture)
    tool = execution.intent.tool
    if tool is not None and tool.name == snippet.TOOL and capture.collected:
        capture = snippet.named(capture)
    if meaning is None:
        meaning = interpreted(contract, adapter, capture)
    if execution.golden is not None:
        different = differences(contract.outputs, execution.golden, capture)
        meaning = replace(meaning, problems=(*meaning.problems, *different))
    capture = _with_work(execution, capture)
    final = ended(execution, adapter, capture, meaning)
    services.sessions.put(
        execution.session, contract.execution_id, capture.stdout.kept, capture.stderr.kept
    )
    result = seal(execution, final)
    if final.outcome is Outcome.SUCCEEDED:
        store_result(execution, capture)
    elif final.outcome is Outcome.PERMISSION_DENIED:
        services.approvals.escalate(contract, execution.session, execution.ended_at)
    return result


def _with_work(execution: Execution, capture: Capture) -> Capture:
    """Add the changes of the work item so far and, of its tests, their result."""
    work = execution.options.work
    if work is None:
        return capture
    if work.count_tests is not None:
        said = (capture.stdout.kept + capture.stderr.kept).decode(errors="replace")
        passed, failed = work.count_tests(said) or (None, None)
        exit_code = interpret(capture.ending).exit_code
        execution.tests = Tested(exit_code=exit_code, passed=passed, failed=failed)
    return replace(capture, diff=work.diff())


def seal_refusal(execution: Execution, refusal: Refused) -> tuple[Refused, Result]:
    """Seal that nothing ran. Where people may permit it, the refusal returned names the request."""
    approvals = execution.services.approvals
    refusal = request_approval(approvals, refusal, execution.intent, execution.trace)
    return refusal, seal(execution, refused(execution, refusal))


def seal_failure(execution: Execution, error: BaseException) -> None:
    final = failed(execution, error)
    if final is not None:
        seal(execution, final)


def _compile(execution: Execution, contract: Contract) -> Result:
    """Compile the adapter of `execution`, by an execution of its own in the same slot."""
    options = execution.options
    shared = Sharing() if options.turn is not None and options.turn.holds else None
    trace_id = execution.intent.trace_id
    return execute(
        contract, execution.services, cancel=options.cancel, trace_id=trace_id, turn=shared
    )
