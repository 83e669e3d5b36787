"""The stages before the start: from a contract to a plan that may run and a runner for it.

    registry -> call -> policy and checks -> sealed inputs -> golden output -> approvals -> plan

Each stage refuses or adds to what is known of the execution.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache

from actum.adapters.kinds import build_call
from actum.approvals.approval_call import FileDigests
from actum.approvals.requests import ApprovalRequired
from actum.contract.call import Call, Plan, SealedInput, bound
from actum.contract.model import Contract
from actum.evidence.records.facts import Stage
from actum.execution import plan as planning
from actum.execution.build_cache import Carry, not_now, with_program
from actum.execution.decision_cache import CachedDecision, key_of
from actum.execution.execution import Execution
from actum.execution.plan import Judged
from actum.golden.expected import expected_of
from actum.policy.ceiling import reduced, within
from actum.policy.gates import Granted
from actum.registry.model import Adapter, AdapterKind, Entry
from actum.registry.path_snapshot import PathSnapshot
from actum.registry.selection import Task
from actum.runners.base import Runner
from actum.value import replace, value

Build = Callable[[Contract, Entry], Call]


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


def prepare(
    execution: Execution,
    contract: Contract,
    carry: Carry | None = not_now,
    *,
    build: Build = build_call,
    granted: tuple[Granted, ...] = (),
    inherited: tuple[SealedInput, ...] = (),
) -> Ready:
    """Make `contract` ready: that of the execution, or the same one for another adapter.

    `granted` are the decisions about a call that this one serves, `inherited` are the sealed inputs
    of that call.
    """
    services = execution.services
    entry = _find_entry(execution, contract, carry, granted)
    execution.stage = Stage.VALIDATION
    key = None
    if build is build_call and not granted:
        key = key_of(contract, entry, services.policy)
    decision = services.decision_cache.find(key)
    if decision is None:
        call = build(contract, entry)
        decision = _decide(execution, contract, entry, call, granted, inherited, key)
        plan = decision.plan
    else:
        plan = _reuse(execution, contract, entry, decision)
    execution.know(plan=plan, proof=plan.proof)
    if plan.secrets:
        services.secrets.require(plan.secrets)
    if plan.sealed:
        plan = bound(replace(plan, views=execution.sealed_inputs.views(plan)))
    runner = services.runner(plan.policy.runner)
    execution.know(foreseen=runner.foresee(plan.policy))
    if entry.adapter.kind is AdapterKind.MCP and build is build_call:
        through = services.mcp_runner(runner, contract, entry, execution)
        return Ready(plan, through, entry, decision.operation, through.keeps)
    return Ready(plan, runner, entry, decision.operation, services.kept)


def _find_entry(
    execution: Execution, contract: Contract, carry: Carry | None, granted: tuple[Granted, ...]
) -> Entry:
    """The approved tool and adapter; its program is compiled now if it has to be."""
    services, inputs = execution.services, contract.inputs
    execution.stage = Stage.REGISTRY
    lock = services.settings.require()
    task = _task(inputs.command, tuple(inputs.parameters))
    entry = services.registry.entry(contract.tool_id, contract.adapter_id, task=task, lock=lock)
    execution.know(tool=entry.tool_ref, adapter=entry.adapter_ref, decisions=granted)
    ceiling = execution.options.ceiling
    if ceiling is not None:
        entry, wider = within(entry, ceiling)
        if wider:
            raise planning.refused(wider)
    return with_program(contract, entry, services, carry)


def _decide(
    execution: Execution,
    contract: Contract,
    entry: Entry,
    call: Call,
    granted: tuple[Granted, ...],
    inherited: tuple[SealedInput, ...],
    key: Hashable | None,
) -> CachedDecision:
    """Check the call against policy, and make the plan that binds what was checked."""
    services, snapshot = execution.services, PathSnapshot()
    judged = planning.judge(contract, entry, call, services.policy, granted, snapshot)
    execution.know(policy=judged.policy, checks=judged.checks)
    judged.require_permissible()
    if execution.options.ceiling is not None and (less := reduced(judged.wished)):
        raise planning.refused(less)
    # From here on the copies are the inputs: for the digest, an approval and the tool.
    checked = judged.checked.call
    sealed = (*inherited, *execution.sealed_inputs.seal(checked.input_files))
    planning.require_program(checked, sealed)
    files = planning.file_digests(checked, sealed)
    input_digest = planning.input_digest(contract, files, checked.program_file)
    execution.know(input_digest=input_digest)
    _expect_golden(execution, contract)
    execution.stage = Stage.POLICY
    if judged.needed:
        judged = _approved(execution, contract, entry, call, judged, files, snapshot)
        key = None  # a decision of people is looked up each time
    plan = planning.make_plan(
        contract,
        entry,
        judged,
        services.registry,
        services.policy,
        execution.trace_context,
        snapshot,
        sealed,
    )
    if plan.policy.interpreters:
        execution.know(policy=plan.policy)
        key = None  # who may change each step of its path is judged each time
    decision = CachedDecision(
        entry=entry,
        settings=services.policy,
        input_digest=input_digest,
        plan=plan,
        operation=call.operation,
        snapshot=snapshot,
    )
    services.decision_cache.keep(key, decision)
    return decision


def _reuse(
    execution: Execution, contract: Contract, entry: Entry, decision: CachedDecision
) -> Plan:
    """The plan of an equal request whose decision still holds, for this one."""
    plan, input_digest = planning.as_asked_by(
        contract, entry, decision.plan, decision.input_digest, execution.trace_context
    )
    execution.know(policy=plan.policy, checks=plan.proof.checks, input_digest=input_digest)
    _expect_golden(execution, contract)
    execution.stage = Stage.POLICY
    return plan


def _expect_golden(execution: Execution, contract: Contract) -> None:
    outputs, golden, intent = contract.outputs, execution.services.golden, execution.intent
    tool, adapter = intent.tool, intent.adapter
    assert tool is not None and adapter is not None  # noqa: S101 -- found by the registry
    execution.golden = expected_of(outputs, golden, tool, adapter, intent.input_digest)


def _approved(
    execution: Execution,
    contract: Contract,
    entry: Entry,
    call: Call,
    judged: Judged,
    files: FileDigests,
    snapshot: PathSnapshot,
) -> Judged:
    """The same call, judged with the decisions of people about exactly it, and with the standing
    approvals that cover it."""
    services = execution.services
    bound = planning.bound_call(contract, entry, judged, files)
    at = execution.intent.started_at
    decided = services.approvals.decided(bound.sha256, judged.needed, at)
    given = {grant.need for grant in decided}
    standing, reasons = services.standing_approvals.serving(
        [need for need in judged.needed if need not in given],
        pin=entry.pin,
        reached=judged.wished.network.allow,
        requested_by=contract.metadata.requested_by,
        at=at,
    )
    granted = (*decided, *standing)
    judged = planning.judge(contract, entry, call, services.policy, granted, snapshot)
    if judged.needed:
        raise ApprovalRequired(judged.needed, bound, reasons)
    execution.granted = granted
    execution.know(policy=judged.policy, checks=judged.checks, decisions=granted)
    judged.require_permissible()
    return judged


@lru_cache(maxsize=256)
def _task(command: str, parameters: tuple[str, ...]) -> Task:
    """What the adapter must be able to do, if the contract leaves its choice to the registry."""
    return Task(operation=command, parameters=parameters)
