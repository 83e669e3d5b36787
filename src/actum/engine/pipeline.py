"""One execution from contract to receipt. Only this module knows the order of the stages.

    contract -> registry -> call -> policy and checks -> plan -> write-ahead -> runner
             -> interpretation -> seal -> result

Every arrow fails closed. A refusal on the way is sealed like any other outcome; a fault is sealed
as far as it can be and then raised. Nothing starts before the PENDING record is on the disk, and
no result is handed out before its receipt is.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from actum.adapters.cli import build_call
from actum.adapters.output import OutputInvalid, apply_output_transforms, check_supported
from actum.capture.interpret import check_outputs, conclude, interpret
from actum.capture.model import Capture, Enforced
from actum.contract.call import Call, Check, EffectivePolicy, Plan, TraceContext
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, Json
from actum.contract.outcome import PROJECTIONS, Outcome, ToolRunStatus
from actum.contract.wire import digests, identity_sha256
from actum.engine import plan as planning
from actum.engine.approvals import ApprovalRequired
from actum.engine.plan import Judged
from actum.engine.replay import answer_again
from actum.engine.result import ArtifactRef, Result, ToolRunResult, encoded
from actum.engine.rooms import Rooms
from actum.errors import Fault, Refused, Violation
from actum.evidence.executions import KnownExecution
from actum.evidence.facts import ExecutionFacts, Intent, Opened, Stage
from actum.evidence.trace import EventType, Trace, TraceEvent
from actum.policy.gates import Granted
from actum.registry.model import Adapter, Entry
from actum.runners.base import Cancel, OnOutput, Runner


def execute(
    contract: Contract,
    rooms: Rooms,
    *,
    on_output: OnOutput | None = None,
    cancel: Cancel | None = None,
    trace_id: str | None = None,
) -> Result:
    """Carry out one contract, or say why not. Returns a Result for every outcome."""
    known = rooms.executions.get(contract.execution_id)
    if (
        known is not None
        and known.may_have_run
        and known.identity_sha256 == (identity_sha256(contract))
    ):
        return answer_again(known, rooms.sessions)

    steps = _Steps(contract, rooms, trace_id or str(uuid.uuid4()))
    try:
        _require_unused(known, contract)
        ready = _prepare(contract, rooms, steps)
        steps.stage = Stage.WRITE_AHEAD
        steps.opened = rooms.ledger.write_ahead(steps.intent, steps.using_approvals())
        steps.tell_approvals("used")
        steps.stage = Stage.RUNNER
        capture = ready.runner.run(ready.plan, steps.trace.emit, on_output, cancel)
    except ApprovalRequired as refusal:
        return steps.seal_refusal(steps.ask_for_approval(refusal))
    except Refused as refusal:
        return steps.seal_refusal(refusal)
    except Fault as fault:
        if steps.opened is not None:
            steps.seal_fault(fault)
        raise
    except BaseException as error:
        # Not foreseen, or Ctrl-C without a `cancel`: whatever it is, the record is closed.
        if steps.opened is not None:
            steps.seal_broken(error)
        raise
    return steps.seal(ready.plan, ready.adapter, capture)


def forecast(contract: Contract, rooms: Rooms) -> Forecast:
    """Everything up to the start, and nothing of it recorded: would this run, and held by what?"""
    steps = _Steps(contract, rooms, str(uuid.uuid4()))
    refusal = None
    try:
        _prepare(contract, rooms, steps)
    except Refused as error:
        refusal = error
    return Forecast(
        contract=contract,
        violations=refusal.violations if refusal else (),
        policy=steps.intent.policy,
        checks=steps.intent.checks,
        enforcement=steps.intent.foreseen,
    )


def _prepare(contract: Contract, rooms: Rooms, steps: _Steps) -> _Ready:
    """From the contract to a plan that may run and a runner that can hold it."""
    steps.stage = Stage.REGISTRY
    entry = rooms.registry.entry(contract.tool_id, contract.adapter_id)
    steps.know(tool=entry.tool_ref, adapter=entry.adapter_ref)
    _require_supported(entry)
    steps.stage = Stage.VALIDATION
    call = build_call(contract, entry)
    judged = planning.judge(contract, entry, call, rooms.policy)
    steps.know(policy=judged.policy, checks=judged.checks)
    judged.require_permissible()
    steps.know(input_digest=planning.input_digest(contract, judged.checked.call))
    steps.stage = Stage.POLICY
    if judged.needed:
        judged = _approved(judged, contract, entry, call, rooms, steps)
    plan = planning.make_plan(
        contract, entry, judged, rooms.registry, rooms.policy, steps.trace_context
    )
    steps.know(plan=plan, proof=plan.proof)
    runner = rooms.runner(judged.policy.runner)
    steps.know(foreseen=runner.foresee(judged.policy))
    return _Ready(plan, runner, entry.adapter)


def _approved(
    judged: Judged, contract: Contract, entry: Entry, call: Call, rooms: Rooms, steps: _Steps
) -> Judged:
    """The same call again, with what people have decided about exactly it."""
    call_sha256 = planning.approval_binding(contract, judged, steps.intent.input_digest)
    granted = rooms.approvals.standing(call_sha256, judged.needed, steps.intent.started_at)
    judged = planning.judge(contract, entry, call, rooms.policy, granted)
    if judged.needed:
        raise ApprovalRequired(judged.needed, call_sha256)
    steps.granted = granted
    steps.know(policy=judged.policy, checks=judged.checks)
    judged.require_permissible()
    return judged


@dataclass(frozen=True, slots=True)
class _Ready:
    plan: Plan
    runner: Runner
    adapter: Adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The answer of `actum check`."""

    contract: Contract
    violations: tuple[Violation, ...]  #: empty: it would run
    policy: EffectivePolicy | None
    checks: tuple[Check, ...]
    enforcement: tuple[Enforced, ...]


def _require_unused(known: KnownExecution | None, contract: Contract) -> None:
    if known is not None and known.may_have_run:
        raise Refused(
            "EXECUTION_ID_REUSED",
            f"execution_id: {contract.execution_id} was used for another request.",
            remedy="Use a new execution_id, or leave it out.",
        )


def _require_supported(entry: Entry) -> None:
    violations = check_supported(entry.adapter)
    if violations:
        raise planning.refused(violations)


class _Steps:
    """What is known so far about one execution, and how it is written down at the end."""

    def __init__(self, contract: Contract, rooms: Rooms, trace_id: str) -> None:
        self.rooms = rooms
        self.began = time.monotonic()
        self.trace = Trace()
        self.stage = Stage.GATE
        self.opened: Opened | None = None
        self.granted: tuple[Granted, ...] = ()
        whole, identity = digests(contract)
        self.intent = Intent(
            contract=contract,
            contract_sha256=whole,
            identity_sha256=identity,
            trace_id=trace_id,
            session=contract.session or rooms.session,
            input_digest=planning.asked_digest(contract),
            started_at=rooms.clock(),
        )

    @property
    def trace_context(self) -> TraceContext:
        return TraceContext(
            trace_id=self.intent.trace_id, execution_id=self.intent.contract.execution_id
        )

    def using_approvals(self) -> Callable[[sqlite3.Cursor], None] | None:
        if not self.granted:
            return None
        intent = self.intent
        return self.rooms.approvals.using(self.granted, intent.execution_id, intent.started_at)

    def ask_for_approval(self, refusal: ApprovalRequired) -> Refused:
        intent = self.intent
        asked = self.rooms.approvals.ask(
            refusal, intent.contract, intent.session, intent.started_at
        )
        for violation in asked.violations:
            self._tell(violation.field, violation.value, "", "requested")
        return asked

    def tell_approvals(self, state: str) -> None:
        for grant in self.granted:
            self._tell(grant.need.gate, grant.request_id, grant.decided_by, state)

    def _tell(self, gate: str, request_id: str, decided_by: str, state: str) -> None:
        intent = self.intent
        self.trace.emit(
            TraceEvent(
                event_type=EventType.APPROVAL,
                trace_id=intent.trace_id,
                execution_id=intent.execution_id,
                attempt=intent.attempt,
                tool_id=intent.contract.tool_id,
                runner_type=intent.policy.runner.value if intent.policy else "",
                container_id=None,
                duration_ms=0,
                data={
                    "gate": gate,
                    "request_id": request_id,
                    "decided_by": decided_by,
                    "state": state,
                },
            )
        )

    def know(self, **facts: object) -> None:
        self.intent = dataclasses.replace(self.intent, **facts)  # type: ignore[arg-type]

    def _facts(self, outcome: Outcome, reasons: tuple[str, ...], **more: object) -> ExecutionFacts:
        known = {
            field.name: getattr(self.intent, field.name)
            for field in dataclasses.fields(self.intent)
        }
        return ExecutionFacts(
            **known,
            outcome=outcome,
            reason_codes=reasons,
            ended_at=self.rooms.clock(),
            duration_ms=int((time.monotonic() - self.began) * 1000),
            opened=self.opened,
            events=self.trace.events,
            **more,  # type: ignore[arg-type]
        )

    def _result(self, outcome: Outcome, reasons: tuple[str, ...], **more: object) -> Result:
        intent = self.intent
        return Result(
            execution_id=intent.execution_id,
            trace_id=intent.trace_id,
            session=intent.session,
            tool_id=intent.contract.tool_id,
            adapter_id=intent.adapter.adapter_id if intent.adapter else intent.contract.adapter_id,
            runner_type=intent.policy.runner.value if intent.policy else None,
            attempts=1 if self.stage is Stage.RUNNER else 0,
            outcome=outcome,
            reason_codes=reasons,
            receipt_id=intent.receipt_id,
            receipt_path=str(self.rooms.receipts.path(intent.receipt_id)),
            **more,  # type: ignore[arg-type]
        )

    def seal_refusal(self, refusal: Refused) -> Result:
        """Nothing ran, and that is evidence too."""
        codes = tuple(
            dict.fromkeys(violation.code.replace("-", "_") for violation in refusal.violations)
        )
        result = self._result(Outcome.REJECTED, codes, violations=refusal.violations)
        facts = self._facts(
            Outcome.REJECTED, codes, refused_at=self.stage, violations=refusal.violations
        )
        self.rooms.ledger.seal(facts, result.without_output())
        return result

    def seal_fault(self, fault: Fault) -> None:
        """We failed after the PENDING record was written; it must not stay open."""
        reasons = (PROJECTIONS[Outcome.EXCEPTION].reason or "", fault.code)
        facts = self._facts(Outcome.EXCEPTION, reasons)
        self.rooms.ledger.seal(facts, self._result(Outcome.EXCEPTION, reasons).without_output())

    def seal_broken(self, error: BaseException) -> None:
        """As `seal_fault`, for what is no fault of ours to name. The sandbox is gone already."""
        outcome = Outcome.EXCEPTION if isinstance(error, Exception) else Outcome.CANCELLED
        reasons = (PROJECTIONS[outcome].reason or "",)
        facts = self._facts(outcome, reasons)
        self.rooms.ledger.seal(facts, self._result(outcome, reasons).without_output())

    def seal(self, plan: Plan, adapter: Adapter, capture: Capture) -> Result:
        """Interpret what came back and close the record; only then is there a result."""
        contract = self.intent.contract
        problems = check_outputs(contract.outputs, interpret(capture.ending), capture)
        output, transform_problem = _transformed(adapter, capture)
        if transform_problem:
            problems = (*problems, transform_problem)
        verdict = conclude(contract.outputs, capture, problems)
        status = PROJECTIONS[verdict.outcome].tool_run or ToolRunStatus.ERROR
        stdout, stdout_facts = encoded(capture.stdout)
        stderr, stderr_facts = encoded(capture.stderr)
        error_reason = verdict.error_reason
        if problems and status is not ToolRunStatus.SUCCESS:
            error_reason = error_reason or "; ".join(problems)
        result = self._result(
            verdict.outcome,
            verdict.reason_codes,
            result=ToolRunResult(
                status=status,
                exit_code=verdict.exit_code,
                stdout=stdout,
                stderr=stderr,
                artifacts=_artifacts(capture, plan.trace.trace_id),
                duration_ms=capture.duration_ms,
                error_reason=None if status is ToolRunStatus.SUCCESS else error_reason,
            ),
            violations=tuple(planning.output_problem(text) for text in problems),
            output=output,
            streams={"stdout": stdout_facts, "stderr": stderr_facts},
            enforcement=capture.enforcement,
            denials=capture.denials,
            egress=capture.connections,
        )
        facts = self._facts(
            verdict.outcome,
            verdict.reason_codes,
            capture=capture,
            exit_code=verdict.exit_code,
            output_digest=_output_digest(capture, verdict.exit_code),
            leftovers=capture.leftovers,
        )
        self.rooms.sessions.put(
            self.intent.session, contract.execution_id, capture.stdout.kept, capture.stderr.kept
        )
        self.rooms.ledger.seal(facts, result.without_output())
        if verdict.outcome is Outcome.PERMISSION_DENIED:
            self.rooms.approvals.escalate(contract, self.intent.session, facts.ended_at)
        return result


def _transformed(adapter: Adapter, capture: Capture) -> tuple[Json, str]:
    """(output, problem). A tool that failed has no output to transform."""
    if not adapter.output_transforms or interpret(capture.ending).outcome is not Outcome.SUCCEEDED:
        return None, ""
    if capture.stdout.truncated:
        return None, "output: stdout was over its limit, so its rest cannot be parsed"
    try:
        return apply_output_transforms(adapter.output_transforms, capture.stdout.kept), ""
    except OutputInvalid as error:
        return None, f"output: {error}"


def _artifacts(capture: Capture, trace_id: str) -> tuple[ArtifactRef, ...]:
    return tuple(
        ArtifactRef(
            name=item.name,
            path=item.path,
            type=item.kind,
            size=item.size,
            sha256=item.sha256,
            blake3=item.blake3,
            trace_id=trace_id,
        )
        for item in capture.collected
    )


def _output_digest(capture: Capture, exit_code: int | None) -> str:
    return sha256_json(
        {
            "stdout": capture.stdout.sha256,
            "stderr": capture.stderr.sha256,
            "exit_code": exit_code,
            "files": [[item.kind, item.path, item.sha256] for item in capture.collected],
        }
    )
