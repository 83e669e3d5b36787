"""One execution from contract to receipt. Only this module knows the order of the stages.

    contract -> registry -> call -> policy and checks -> plan -> place -> write-ahead -> runner
             -> interpretation -> seal -> result

Every arrow fails closed. A refusal on the way is sealed like any other outcome; a fault is sealed
as far as it can be and then raised. Nothing starts before the PENDING record is on the disk, and
no result is handed out before its signed receipt is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from actum.adapters.kinds import build_call
from actum.capture.model import Capture, Enforced
from actum.contract.call import Call, Check, EffectivePolicy, Plan, SealedInput
from actum.contract.model import Contract, Determinism
from actum.engine import plan as planning
from actum.engine import transactions
from actum.engine.account import Account
from actum.engine.approval_call import FileDigests
from actum.engine.approvals import ApprovalRequired
from actum.engine.attempts import Ready, carry_out, prepared
from actum.engine.determinism import look_again
from actum.engine.golden import expected_of
from actum.engine.plan import Judged
from actum.engine.precedents import Precedent, key_of
from actum.engine.programs import Carry, not_now, with_program
from actum.engine.replay import answer_again
from actum.engine.result import Result
from actum.engine.rooms import Rooms
from actum.errors import Refused, Violation
from actum.evidence.facts import Stage
from actum.policy.gates import Granted
from actum.registry.looks import Looks
from actum.registry.model import AdapterKind, Entry
from actum.registry.selection import Task
from actum.runners.base import Cancel, OnOutput
from actum.runners.lifecycle import never_started
from actum.runners.places import Got, Queueing, Sharing, Turn
from actum.value import replace, value

if TYPE_CHECKING:
    from actum.engine.mcp.through import ThroughServer


def execute(
    contract: Contract,
    rooms: Rooms,
    *,
    on_output: OnOutput | None = None,
    cancel: Cancel | None = None,
    trace_id: str | None = None,
    turn: Turn | None = None,
    parent_receipt: str | None = None,
    changes: str = "commit",
) -> Result:
    """Carry out one contract, or say why not. Returns a Result for every outcome."""
    turn = turn or Queueing(rooms.places, cancel, rooms.wait_s)
    account = Account(contract, rooms, trace_id, parent_receipt)
    clerk = rooms.ledger.clerk

    def compiled(made: Contract) -> Result:
        """An adapter that has to be compiled first is, by an execution of its own."""
        shared = Sharing() if turn.holds else None
        trace_id = account.intent.trace_id
        return execute(made, rooms, cancel=cancel, trace_id=trace_id, turn=shared)

    def made_ready(asked: Contract) -> Ready:
        return prepare(asked, rooms, account, compiled)

    def run(ready: Ready) -> Capture:
        if contract.determinism is Determinism.D2 and account.find_cached(ready.plan):
            return account.answer_cached(on_output)
        account.runner = runner = ready.runner

        def carry_out(plan: Plan, about_to_start: Callable[[], None] | None = None) -> Capture:
            def may_start() -> None:
                account.open()
                if about_to_start is not None:
                    about_to_start()

            # The runner prepares, asks whether it may start, and starts the tool then.
            capture = runner.run(plan, account.trace.emit, on_output, cancel, may_start)
            account.require_open(runner)
            return capture

        if not ready.plan.policy.transaction or ready.by_kept:
            return carry_out(ready.plan)
        return transactions.run(
            ready.plan,
            rooms.settlement,
            carry_out,
            takes_overlay=runner.takes_overlay,
            wanted=changes,
            ask=account.ask_to_commit,
        )

    clerk.arrive()
    try:
        known = None
        if rooms.ledger.log.has(contract.execution_id):
            known = rooms.executions.get(contract.execution_id)
        if known is not None and known.may_have_run:
            return answer_again(
                known, account.intent.identity_sha256, rooms.sessions, rooms.receipts
            )
        ready = prepared(contract, account, made_ready)
        account.stage = Stage.WRITE_AHEAD
        with turn.place(contract) as got:
            if got is Got.AFTER_A_WAIT:  # what was judged may have changed meanwhile
                ready = prepared(contract, account, lambda asked: prepare(asked, rooms, account))
                account.stage = Stage.WRITE_AHEAD
            if got is Got.CANCELLED:
                account.open()  # received and cancelled is on record too
                capture = never_started(
                    ready.plan, ready.runner.kind, account.trace.emit, account.intent.foreseen
                )
            else:
                ready, capture = carry_out(
                    contract, ready, account, run=run, prepare=made_ready, cancel=cancel
                )
                if contract.determinism is not Determinism.D0 and account.cached is None:
                    account.tell_determinism(
                        look_again(ready.plan, ready.runner, capture, cancel, contract.determinism)
                    )
    except Refused as refusal:
        _told, result = account.seal_refusal(refusal)
        return result
    except BaseException as error:
        # A fault; or not foreseen, or Ctrl-C without a `cancel`: the record is closed all the same.
        account.seal_error(error)
        raise
    else:
        return account.seal(ready.plan, ready.adapter, capture)
    finally:
        clerk.leave()
        account.sealed.close()
        account.rest()


def forecast(contract: Contract, rooms: Rooms) -> Forecast:
    """Everything up to the start, and nothing of it recorded: would this run, and held by what?"""
    account = Account(contract, rooms)
    refusal = None
    try:
        prepare(contract, rooms, account, None)
    except Refused as error:
        refusal = error
    finally:
        account.sealed.close()
    return Forecast(
        contract=contract,
        violations=refusal.violations if refusal else (),
        policy=account.intent.policy,
        checks=account.intent.checks,
        enforcement=account.intent.foreseen,
    )


def prepare(
    contract: Contract,
    rooms: Rooms,
    account: Account,
    carry: Carry | None = not_now,
    *,
    build: Callable[[Contract, Entry], Call] = build_call,
    granted: tuple[Granted, ...] = (),
    inherited: tuple[SealedInput, ...] = (),
) -> Ready:
    """From the contract to a plan that may run and a runner that can hold it.

    `granted` is what people have decided about a call that this one serves, `inherited` are the
    sealed inputs of that call.
    """
    account.stage = Stage.REGISTRY
    rooms.settings.require()
    inputs = contract.inputs
    task = _task(inputs.command, tuple(inputs.parameters))
    entry = rooms.registry.entry(contract.tool_id, contract.adapter_id, task=task)
    tool, adapter = entry.tool_ref, entry.adapter_ref
    account.know(tool=tool, adapter=adapter, decisions=granted)
    entry = with_program(contract, entry, rooms, carry)
    account.stage = Stage.VALIDATION
    key = None
    if build is build_call and not granted:
        key = key_of(contract, entry, rooms.policy)
    known = rooms.precedents.find(key)
    if known is None:
        looks = Looks()
        call = build(contract, entry)
        judged = planning.judge(contract, entry, call, rooms.policy, granted, looks)
        account.know(policy=judged.policy, checks=judged.checks)
        judged.require_permissible()
        # From here on the copies are the inputs: for the digest, an approval and the tool.
        sealed = (*inherited, *account.sealed.seal(judged.checked.call.input_files))
        files = planning.file_digests(judged.checked.call, sealed)
        input_digest = planning.input_digest(contract, files)
        account.know(input_digest=input_digest)
    else:
        plan, input_digest = planning.as_asked_by(
            contract, entry, known.plan, known.input_digest, account.trace_context
        )
        account.know(policy=plan.policy, checks=plan.proof.checks, input_digest=input_digest)
    account.golden = expected_of(contract.outputs, rooms.golden, tool, adapter, input_digest)
    account.stage = Stage.POLICY
    if known is None:
        if judged.needed:
            judged = _approved(judged, contract, entry, call, files, rooms, account, looks)
            key = None  # a decision is asked for each time
        plan = planning.make_plan(
            contract,
            entry,
            judged,
            rooms.registry,
            rooms.policy,
            account.trace_context,
            looks,
            sealed,
        )
        known = Precedent(
            entry=entry,
            settings=rooms.policy,
            input_digest=input_digest,
            plan=plan,
            operation=call.operation,
            looks=looks,
        )
        rooms.precedents.keep(key, known)
    account.know(plan=plan, proof=plan.proof)
    if plan.secrets:
        rooms.secrets.require(plan.secrets)
    policy = plan.policy
    if plan.sealed:
        plan = replace(plan, views=account.sealed.views(plan))
    runner = rooms.runner(policy.runner)
    account.know(foreseen=runner.foresee(policy))
    if entry.adapter.kind is AdapterKind.MCP and build is build_call:
        through = _through_server()(runner, contract, entry, rooms, account)
        return Ready(plan, through, entry, known.operation, through.keeps)
    return Ready(plan, runner, entry, known.operation, rooms.kept)


def _approved(
    judged: Judged,
    contract: Contract,
    entry: Entry,
    call: Call,
    files: FileDigests,
    rooms: Rooms,
    account: Account,
    looks: Looks,
) -> Judged:
    """The same call again, with what people have decided about exactly it."""
    bound = planning.bound_call(contract, entry, judged, files)
    granted = rooms.approvals.standing(bound.sha256, judged.needed, account.intent.started_at)
    judged = planning.judge(contract, entry, call, rooms.policy, granted, looks)
    if judged.needed:
        raise ApprovalRequired(judged.needed, bound)
    account.granted = granted
    account.know(policy=judged.policy, checks=judged.checks, decisions=granted)
    judged.require_permissible()
    return judged


@value
class Forecast:
    """The answer of `actum check`."""

    contract: Contract
    violations: tuple[Violation, ...]  #: empty: it would run
    policy: EffectivePolicy | None
    checks: tuple[Check, ...]
    enforcement: tuple[Enforced, ...]


@cache
def _through_server() -> type[ThroughServer]:
    from actum.engine.mcp.through import ThroughServer  # few executions need it

    return ThroughServer


@lru_cache(maxsize=256)
def _task(command: str, parameters: tuple[str, ...]) -> Task:
    """What the adapter must be able to do, if the contract leaves its choice to the registry."""
    return Task(operation=command, parameters=parameters)
