"""One execution: what is known of it, stage by stage, and the one `seal` that closes its record.

Each stage of the pipeline replaces `Execution.intent`, a frozen value, by one that says more. A
stage that raises leaves what was known before it. `seal` makes trace, audit record, evidence,
receipt and result from the last `intent`, so that they cannot contradict each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

from actum.capture.model import DiffSummary, Enforced
from actum.contract.call import (
    AdapterRef,
    Check,
    EffectivePolicy,
    Plan,
    ToolRef,
    TraceContext,
    ValidationProof,
    stripped_names,
)
from actum.contract.contract_json import asked_sha256, digests
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json
from actum.contract.outcome import Outcome
from actum.errors import SandboxUnavailable
from actum.evidence.receipts import Receipts
from actum.evidence.records.audit import closed
from actum.evidence.records.error_event import PHASES, Phase
from actum.evidence.records.execution_event import execution_event
from actum.evidence.records.facts import (
    CachedFrom,
    ExecutionFacts,
    Intent,
    Opened,
    Stage,
    Tested,
)
from actum.evidence.records.receipt import Receipt
from actum.evidence.records.trace import EventType, Trace
from actum.execution.result import Attempt, FellBack, Result
from actum.execution.services import Services
from actum.policy.gates import Granted
from actum.registry.given_permissions import GivenPermissions
from actum.runners.base import Cancel, OnOutput, Runner
from actum.value import plain, replace, value
from actum.workspace.sealed import SealedInputs

if TYPE_CHECKING:
    from actum.determinism.claims import Determination
    from actum.execution.final_state import FinalState
    from actum.execution.result_cache import CachedResult
    from actum.runners.concurrency import Turn
    from actum.store.golden_outputs import Golden


@value
class WorkStep:
    """What a work item knows of an execution that is one of its steps."""

    diff: Callable[[], DiffSummary | None]  #: the changes of the item so far
    #: Counts passed and failed tests in an output, if the execution runs the item's tests.
    count_tests: Callable[[str], tuple[int, int] | None] | None = None


@value
class Options:
    """How the caller wants a contract carried out. None of it is part of the contract."""

    on_output: OnOutput | None = None
    cancel: Cancel | None = None
    turn: Turn | None = None  #: how it waits for a place; ``None``: it needs none
    changes: str = "commit"  #: to writable folders: commit, hold or discard
    work: WorkStep | None = None  #: ``None``: it is no step of a work item
    ceiling: GivenPermissions | None = None  #: of `run_tool`; ``None``: the tool's permissions


_NO_OPTIONS = Options()


class Facts(TypedDict, total=False):
    """What the stages find out: fields of `Intent`."""

    attempt: int
    tool: ToolRef
    adapter: AdapterRef
    decisions: tuple[Granted, ...]
    policy: EffectivePolicy
    checks: tuple[Check, ...]
    input_digest: str
    plan: Plan
    proof: ValidationProof
    foreseen: tuple[Enforced, ...]
    parent_receipt: str


@value(kw_only=False)
class State:
    """What is known at one moment, to return to if another attempt is refused."""

    intent: Intent
    stage: Stage
    granted: tuple[Granted, ...]


class _Export:
    """Writes the receipt's file, once the execution is sealed."""

    __slots__ = ("_receipts", "receipt")

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self.receipt: Receipt | None = None

    def __call__(self) -> None:
        if self.receipt is not None:
            self._receipts.write(self.receipt)


class Execution:
    """One execution, from its first stage to its seal."""

    stage = Stage.GATE
    opened: Opened | None = None
    runner: Runner | None = None  #: that carries it out
    granted: tuple[Granted, ...] = ()  #: the decisions that its plan rests on
    used = granted  #: those of them that are on record as used
    golden: Golden | None = None  #: what the output is compared with
    cache_key: str | None = None  #: under which its result can be cached
    cached: CachedResult | None = None  #: the earlier result that is its answer
    determination: Determination | None = None
    history: tuple[Attempt, ...] = ()  #: where the adapter may try again or fall back
    fell_back: FellBack | None = None
    tests: Tested | None = None
    ended_at: datetime  #: set by `seal`

    def __init__(
        self,
        contract: Contract,
        services: Services,
        options: Options = _NO_OPTIONS,
        *,
        trace_id: str | None = None,
        parent_receipt: str | None = None,
    ) -> None:
        self.services = services
        self.contract = contract
        self.options = options
        self.session = contract.session or services.session
        self.began = time.monotonic()
        self.trace = Trace()
        self._logged: set[tuple[int, str | None, str]] = set()
        whole, identity = digests(contract)
        self.intent = Intent(
            contract=contract,
            contract_sha256=whole,
            identity_sha256=identity,
            trace_id=trace_id or new_id(),
            session=self.session,
            input_digest="",  # once the input files are sealed
            started_at=services.clock(),
            parent_receipt=parent_receipt,
        )
        self.export = _Export(services.receipts)
        self.sealed_inputs = SealedInputs(services.settlement.home)

    def know(self, **facts: Unpack[Facts]) -> None:
        self.intent = replace(self.intent, **facts)

    @property
    def trace_context(self) -> TraceContext:
        intent = self.intent
        return TraceContext(
            trace_id=intent.trace_id,
            execution_id=self.contract.execution_id,
            attempt=intent.attempt,
            parent=intent.parent_receipt,
        )

    @property
    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self.began) * 1000)

    def state(self) -> State:
        return State(self.intent, self.stage, self.granted)

    def restore(self, state: State) -> None:
        self.intent, self.stage, self.granted = state.intent, state.stage, state.granted

    def emit(self, kind: EventType, data: Mapping[str, Json], duration_ms: int = 0) -> None:
        """Add an event about the execution itself to its trace."""
        self.trace.emit(execution_event(self.intent, kind, data, duration_ms))

    def log_error(self, code: str, phase: Phase | None = None) -> None:
        """Add an error to the trace: of this attempt, through this adapter, in this phase. An
        attempt that ends with a code has one record of it."""
        intent = self.intent
        adapter_id = intent.adapter.adapter_id if intent.adapter else self.contract.adapter_id
        error = intent.attempt, adapter_id, code
        if error in self._logged:
            return
        self._logged.add(error)
        data = {
            "adapter_id": closed(adapter_id),
            "phase": phase or PHASES[self.stage],
            "code": closed(code),
        }
        self.emit(EventType.ERROR, data, self.elapsed_ms)

    def require_open(self, runner: Runner) -> None:
        if self.opened is None:
            raise SandboxUnavailable(
                f"The {runner.kind} runner answered without having asked whether it may start.",
                remedy="Fix the runner: `actum.testing.RunnerConformance` finds this.",
            )


def _log_ending(execution: Execution, final: FinalState) -> None:
    """A fault's own code is the last of its reasons, those of a refusal are all its own."""
    phase = Phase.OUTPUTS if final.outcome is Outcome.OUTPUT_INVALID else None
    codes = final.reasons if final.refused_at is not None else final.reasons[-1:]
    for code in codes:
        execution.log_error(code, phase)


def _cached_from(cached: CachedResult | None) -> CachedFrom | None:
    if cached is None:
        return None
    return CachedFrom(execution_id=cached.execution_id, receipt_id=cached.receipt_id)


def seal(execution: Execution, final: FinalState) -> Result:
    """Close the record with its signed receipt; only then is there a result."""
    services, contract = execution.services, execution.contract
    if not execution.intent.input_digest:  # it ended before its input files were sealed
        execution.know(input_digest=asked_sha256(contract))
    intent = execution.intent
    if final.outcome is not Outcome.SUCCEEDED:
        _log_ending(execution, final)
    adapter, policy, capture = intent.adapter, intent.policy, final.capture
    started = execution.stage is Stage.RUNNER and execution.cached is None
    was_refused = final.refused_at is not None
    result = Result(
        execution_id=contract.execution_id,
        trace_id=intent.trace_id,
        session=execution.session,
        tool_id=contract.tool_id,
        adapter_id=adapter.adapter_id if adapter else contract.adapter_id,
        adapter_status=adapter.status if adapter else None,
        runner_type=str(policy.runner) if policy else None,
        attempts=intent.attempt if started else 0,
        cached=execution.cached.execution_id if execution.cached else None,
        history=execution.history,
        fallback=execution.fell_back,
        outcome=final.outcome,
        reason_codes=final.reasons,
        violations=final.violations,
        filled=tuple(sorted(contract.filled)),
        narrowed=policy.narrowed if policy else (),
        stripped=stripped_names(intent.checks),
        evidence_ref=intent.evidence_ref,
        receipt_id=intent.receipt_id,
        receipt_at=f"{services.receipts.folder}/{intent.receipt_id}.json",
        export=execution.export,
        **(final.run or {}),
    )
    execution.ended_at = services.clock()
    facts = ExecutionFacts(
        **plain(intent),
        outcome=final.outcome,
        reason_codes=final.reasons,
        ended_at=execution.ended_at,
        duration_ms=execution.elapsed_ms,
        refused_at=final.refused_at,
        violations=final.violations if was_refused else (),
        opened=execution.opened,
        capture=capture,
        exit_code=final.exit_code,
        allowlist=final.allowlist,
        output_digest=final.output_digest,
        tests=execution.tests,
        cached=_cached_from(execution.cached),
        events=execution.trace.events,
        leftovers=None if capture is None else capture.leftovers,
        cleanup=None if capture is None else capture.cleanup,
    )
    execution.export.receipt = services.ledger.seal(facts, result.without_output())
    return result
