"""The account of one execution: what is known so far, and how it is written down at the end.

The pipeline tells it what each stage found out; whatever happens then, one of the `seal` methods
closes the record from that same knowledge, so that trace, audit, evidence, receipt and result
cannot tell different stories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from actum.capture.interpret import conclude
from actum.capture.model import Capture
from actum.contract.call import Plan, TraceContext
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.contract.wire import digests
from actum.engine import plan as planning
from actum.engine import snippet
from actum.engine.approvals import ApprovalRequired
from actum.engine.determinism import Determination
from actum.engine.golden import differences
from actum.engine.interpretation import interpreted, output_digest, told
from actum.engine.result import Attempt, FellBack, Result
from actum.engine.results import Kept, answered, is_fit, key_of
from actum.engine.rooms import Rooms
from actum.errors import EvidenceUnavailable, Fault, Refused, SandboxUnavailable
from actum.evidence.facts import ExecutionFacts, Intent, Opened, Stage
from actum.evidence.log import Page
from actum.evidence.receipt import Receipt
from actum.evidence.receipts import Receipts
from actum.evidence.trace import EventType, Trace, TraceEvent
from actum.policy.gates import GOVERNING_CHANGES, Granted
from actum.registry.model import Adapter
from actum.runners.base import OnOutput, Runner
from actum.store.golden import Golden
from actum.value import plain, value
from actum.workspace.sealed import SealedInputs


@value(kw_only=False)
class State:
    intent: Intent
    stage: Stage
    granted: tuple[Granted, ...]


class _Export:
    """Writes the file of a receipt that there is once the execution is sealed."""

    __slots__ = ("_receipts", "receipt")

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self.receipt: Receipt | None = None

    def __call__(self) -> None:
        if self.receipt is not None:
            self._receipts.write(self.receipt)


class Account:
    """One execution, from its first stage to its seal."""

    stage = Stage.GATE
    opened: Opened | None = None
    runner: Runner | None = None  #: that was asked to carry it out
    granted: tuple[Granted, ...] = ()
    determination: Determination | None = None
    history: tuple[Attempt, ...] = ()  #: of adapters that may try again or fall back
    fell_back: FellBack | None = None
    golden: Golden | None = None  #: what the output is compared with
    cached: Kept | None = None  #: what the answer is taken from
    _used = granted  #: those that are on record as used
    _cache_key: str | None = None
    _interpreted: tuple[Adapter, Capture, tuple[Json, tuple[str, ...]]] | None = None
    _intent: Intent | None = None

    def __init__(
        self,
        contract: Contract,
        rooms: Rooms,
        trace_id: str | None = None,
        parent_receipt: str | None = None,
    ) -> None:
        self.rooms = rooms
        self.contract = contract
        self.session = contract.session or rooms.session
        self.began = time.monotonic()
        self.trace = Trace()
        whole, identity, asked = digests(contract)
        #: The fields of an `Intent`; it is made when somebody needs all of them together.
        self._known: dict[str, Any] = {
            "contract": contract,
            "contract_sha256": whole,
            "identity_sha256": identity,
            "trace_id": trace_id or new_id(),
            "session": self.session,
            "input_digest": asked,
            "started_at": rooms.clock(),
            "attempt": 1,
            "parent_receipt": parent_receipt,
            "receipt_id": new_id(),
            "evidence_id": new_id(),
        }
        self._export = _Export(rooms.receipts)
        self.sealed = SealedInputs(rooms.settlement.home)

    @property
    def trace_context(self) -> TraceContext:
        known = self._known
        return TraceContext(
            trace_id=known["trace_id"],
            execution_id=self.contract.execution_id,
            attempt=known["attempt"],
            parent=known["parent_receipt"],
        )

    def state(self) -> State:
        """What is known now, to return to if another attempt is refused."""
        return State(self.intent, self.stage, self.granted)

    def restore(self, state: State) -> None:
        self._intent, self.stage, self.granted = state.intent, state.stage, state.granted
        self._known = plain(state.intent)

    def open(self) -> None:
        """Put on record that it is about to start; raises if it must not."""
        ledger = self.rooms.ledger
        used = self._using_approvals()
        if self.opened is None:
            self.opened = ledger.write_ahead(self.intent, used)
        else:
            self.opened = ledger.another_attempt(self.intent, used)
        self.stage = Stage.RUNNER
        if used is not None:
            self._tell_approvals("used")
            self._used = self.granted  # now, and not a second time

    def rest(self) -> None:
        """The record is closed, and the runner may do what could wait for that."""
        if self.runner is not None:
            self.runner.rest()

    def require_open(self, runner: Runner) -> None:
        if self.opened is None:
            raise SandboxUnavailable(
                f"The {runner.kind} runner answered without having asked whether it may start.",
                remedy="Mend the runner: `actum.testing.RunnerConformance` finds this.",
            )

    def _using_approvals(self) -> Callable[[Page], None] | None:
        if self.granted is self._used:
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

    def ask_to_commit(self, name: str, diff_sha256: str) -> str:
        """Changes that this execution has made wait for a decision."""
        intent = self.intent
        request_id = self.rooms.approvals.ask_to_commit(
            name, diff_sha256, intent.contract, intent.session, self.rooms.clock()
        )
        self._tell(GOVERNING_CHANGES, request_id, "", "requested")
        return request_id

    def _tell_approvals(self, state: str) -> None:
        for grant in self.granted:
            self._tell(grant.need.gate, grant.request_id, grant.decided_by, state)

    def _tell(self, gate: str, request_id: str, decided_by: str, state: str) -> None:
        data = {"gate": gate, "request_id": request_id, "decided_by": decided_by, "state": state}
        self.trace.emit(self._event(EventType.APPROVAL, data))

    def _event(self, kind: EventType, data: Mapping[str, Json], duration_ms: int = 0) -> TraceEvent:
        intent = self.intent
        return TraceEvent(
            event_type=kind,
            trace_id=intent.trace_id,
            execution_id=intent.execution_id,
            attempt=intent.attempt,
            tool_id=intent.contract.tool_id,
            runner_type=intent.policy.runner.value if intent.policy else "",
            container_id=None,
            duration_ms=duration_ms,
            data=data,
        )

    def know(self, **facts: object) -> None:
        self._known.update(facts)
        self._intent = None

    @property
    def intent(self) -> Intent:
        """All that is known by now."""
        if self._intent is None:
            self._intent = Intent(**self._known)
        return self._intent

    def _facts(self, outcome: Outcome, reasons: tuple[str, ...], **more: object) -> ExecutionFacts:
        return ExecutionFacts(
            **self._known,
            outcome=outcome,
            reason_codes=reasons,
            ended_at=self.rooms.clock(),
            duration_ms=int((time.monotonic() - self.began) * 1000),
            opened=self.opened,
            events=self.trace.events,
            **more,  # type: ignore[arg-type]
        )

    def _result(self, outcome: Outcome, reasons: tuple[str, ...], **more: object) -> Result:
        contract, known = self.contract, self._known
        adapter, policy = known.get("adapter"), known.get("policy")
        receipt_id = known["receipt_id"]
        return Result(
            execution_id=contract.execution_id,
            trace_id=known["trace_id"],
            session=self.session,
            tool_id=contract.tool_id,
            adapter_id=adapter.adapter_id if adapter else contract.adapter_id,
            runner_type=str(policy.runner) if policy else None,
            attempts=known["attempt"] if self.stage is Stage.RUNNER and not self.cached else 0,
            cached=self.cached.execution_id if self.cached else None,
            history=self.history,
            fallback=self.fell_back,
            outcome=outcome,
            reason_codes=reasons,
            receipt_id=receipt_id,
            receipt_at=f"{self.rooms.receipts.folder}/{receipt_id}.json",
            export=self._export,
            **more,  # type: ignore[arg-type]
        )

    def _seal(self, facts: ExecutionFacts, document: Mapping[str, Json]) -> None:
        """Close the record; from here on there is a receipt to be handed out."""
        self._export.receipt = self.rooms.ledger.seal(facts, document)

    def seal_refusal(self, refusal: Refused) -> tuple[Refused, Result]:
        """Nothing ran, and that is evidence too. Where people may permit it, they are asked, and
        the refusal that is returned says so."""
        if isinstance(refusal, ApprovalRequired):
            refusal = self.ask_for_approval(refusal)
        codes = tuple(
            dict.fromkeys(violation.code.replace("-", "_") for violation in refusal.violations)
        )
        result = self._result(Outcome.REJECTED, codes, violations=refusal.violations)
        facts = self._facts(
            Outcome.REJECTED, codes, refused_at=self.stage, violations=refusal.violations
        )
        self._seal(facts, result.without_output())
        return refusal, result

    def seal_fault(self, fault: Fault) -> None:
        """We failed after the PENDING record was written; it must not stay open."""
        reasons = (PROJECTIONS[Outcome.EXCEPTION].reason or "", fault.code)
        facts = self._facts(Outcome.EXCEPTION, reasons)
        self._seal(facts, self._result(Outcome.EXCEPTION, reasons).without_output())

    def seal_broken(self, error: BaseException) -> None:
        """As `seal_fault`, for what is no fault of ours to name. The sandbox is gone already."""
        outcome = Outcome.EXCEPTION if isinstance(error, Exception) else Outcome.CANCELLED
        reasons = (PROJECTIONS[outcome].reason or "",)
        facts = self._facts(outcome, reasons)
        self._seal(facts, self._result(outcome, reasons).without_output())

    def seal_error(self, error: BaseException) -> None:
        """One of the two above, if there is an open record to be closed."""
        if isinstance(error, Fault):
            # A store that could not open the record cannot close it either.
            if self.opened is not None or not isinstance(error, EvidenceUnavailable):
                self.seal_fault(error)
        elif self.opened is not None:
            self.seal_broken(error)

    def tell_determinism(self, found: Determination) -> None:
        """What was claimed about repeatability, and whether a second run bore it out."""
        self.determination = found
        elapsed_ms = int((time.monotonic() - self.began) * 1000)
        # The signed trace names the key: a cached result serves no other one.
        key = {} if self._cache_key is None else {"cache_key": self._cache_key}
        data = {**found.document(), **key}
        self.trace.emit(self._event(EventType.DETERMINISM, data, elapsed_ms))

    def find_cached(self, plan: Plan) -> bool:
        """Whether the same was carried out in this session, in a way that it would repeat."""
        key = key_of(plan, self._known["input_digest"], self.contract.determinism)
        self._cache_key = key
        if key is not None:
            self.cached = self.rooms.results.get(self.session, key)
        return self.cached is not None

    def answer_cached(self, on_output: OnOutput | None) -> Capture:
        """What came back then. It is put on record as any other; only no tool runs."""
        kept = self.cached
        assert kept is not None  # noqa: S101 -- it was found
        self.open()
        source = {"execution_id": kept.execution_id, "receipt_id": kept.receipt_id}
        self.trace.emit(self._event(EventType.CACHED, source))
        self.tell_determinism(kept.determination)
        for name, stream in (("stdout", kept.capture.stdout), ("stderr", kept.capture.stderr)):
            if on_output is not None and stream.kept:
                on_output(name, stream.kept)
        return answered(kept)

    def _keep_for_later(self, capture: Capture) -> None:
        found, key = self.determination, self._cache_key
        if key is None or found is None or self.cached is not None or not is_fit(capture, found):
            return
        kept = Kept(
            capture=capture,
            execution_id=self.contract.execution_id,
            receipt_id=self._known["receipt_id"],
            determination=found,
        )
        self.rooms.results.put(self.session, key, kept)

    def tell_session(self, totals: Mapping[str, Json]) -> None:
        """What a tool that was kept running was used for, in numbers."""
        elapsed_ms = int((time.monotonic() - self.began) * 1000)
        self.trace.emit(self._event(EventType.SESSION, totals, elapsed_ms))

    def interpretation(self, adapter: Adapter, capture: Capture) -> tuple[Json, tuple[str, ...]]:
        """What `capture` means, found out once: whether to try again asks for it, and the seal."""
        known = self._interpreted
        if known is None or known[0] is not adapter or known[1] is not capture:
            found = interpreted(self.contract, adapter, capture)
            known = self._interpreted = adapter, capture, found
        return known[2]

    def _value(self, plan: Plan, capture: Capture) -> Json:
        # Of a snippet. Now, while the kernel still clears it away, and not when somebody waits.
        return snippet.value_in(capture) if plan.tool.name == snippet.TOOL else None

    def seal(self, plan: Plan, adapter: Adapter, capture: Capture) -> Result:
        """Interpret what came back and close the record; only then is there a result."""
        contract = self.contract
        output, problems = self.interpretation(adapter, capture)
        if self.golden is not None:
            problems += tuple(differences(contract.outputs, self.golden, capture))
        verdict = conclude(contract.outputs, capture, problems)
        outcome = verdict.outcome
        result = self._result(
            outcome,
            verdict.reason_codes,
            violations=tuple(map(planning.output_problem, problems)),
            output=self._value(plan, capture) if output is None else output,
            determinism=self.determination.document() if self.determination else None,
            **told(adapter, capture, verdict, problems, plan.trace.trace_id, output),
        )
        self.rooms.sessions.put(
            self.session, contract.execution_id, capture.stdout.kept, capture.stderr.kept
        )
        digest = output_digest(capture, verdict.exit_code)
        facts = self._facts(
            outcome,
            verdict.reason_codes,
            capture=capture,
            exit_code=verdict.exit_code,
            output_digest=digest,
            leftovers=capture.leftovers,
            clearing=capture.clearing,
        )
        self._seal(facts, result.without_output())
        if outcome is Outcome.SUCCEEDED:
            self._keep_for_later(capture)
        elif outcome is Outcome.PERMISSION_DENIED:
            self.rooms.approvals.escalate(contract, self.session, facts.ended_at)
        return result
