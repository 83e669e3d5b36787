"""All facts about one execution that its records are made from.

The audit record, the trace, the evidence record and the receipt are all made from this one value,
so they cannot contradict each other. A refused execution has no plan and no capture; the facts it
has show how far it came. Nothing here decides or writes anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING

from actum.capture.model import Capture, Enforced
from actum.contract.call import AdapterRef, Check, EffectivePolicy, Plan, ToolRef, ValidationProof
from actum.contract.ids import new_id
from actum.contract.model import Contract
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import Violation
from actum.evidence.records.trace import Recorded
from actum.policy.allowlist import AllowlistCheck
from actum.policy.gates import Granted
from actum.value import field, value

if TYPE_CHECKING:
    from actum.evidence.records.opening import OpeningRecord

# The package's __init__ holds the version, and imports every package above this one for type
# checkers. It is looked up, not imported, so that evidence depends on none of them.
ACTUM_VERSION: str = sys.modules["actum"].__version__


class Stage(IntEnum):
    """Where a request was refused; the order is that of the pipeline."""

    GATE = 1
    REGISTRY = 2
    VALIDATION = 3
    POLICY = 4
    WRITE_AHEAD = 5
    RUNNER = 6


@value
class Opened:
    """Proof that evidence was open before the start: the PENDING audit record, on the disk."""

    pending_seq: int
    #: The opening record that was written.
    record: OpeningRecord | None = field(default=None, repr=False, compare=False)


def _new_id() -> str:
    return new_id()


@value
class Intent:
    """Facts from before the start. `ExecutionFacts` add those of the end."""

    contract: Contract
    contract_sha256: str
    identity_sha256: str
    trace_id: str
    session: str
    input_digest: str
    started_at: datetime
    attempt: int = 1  #: number of this attempt, or of the last one
    tool: ToolRef | None = None
    adapter: AdapterRef | None = None
    policy: EffectivePolicy | None = None
    checks: tuple[Check, ...] = ()  #: of a proof, or of a validation that failed
    proof: ValidationProof | None = None
    plan: Plan | None = None
    foreseen: tuple[Enforced, ...] = ()  #: how the runner will enforce each limit
    decisions: tuple[Granted, ...] = ()  #: approvals that the policy rests on
    parent_receipt: str | None = None
    receipt_id: str = field(default_factory=_new_id)
    evidence_id: str = field(default_factory=_new_id)

    @property
    def execution_id(self) -> str:
        return self.contract.execution_id

    @property
    def evidence_ref(self) -> str:
        """The reference of the evidence: the requester's own, or ours."""
        return self.contract.metadata.evidence_ref or f"evidence:{self.evidence_id}"


@value
class CachedFrom:
    """The earlier execution whose result an execution repeats."""

    execution_id: str
    receipt_id: str


@value
class Tested:
    """The result of the tests that an execution ran."""

    exit_code: int | None
    passed: int | None  #: ``None``: the output is of no known test runner
    failed: int | None


@value
class ExecutionFacts(Intent):
    """One execution, ended or refused."""

    outcome: Outcome
    reason_codes: tuple[str, ...]
    ended_at: datetime
    duration_ms: int
    refused_at: Stage | None = None  #: ``None``: it was not refused
    violations: tuple[Violation, ...] = ()
    opened: Opened | None = None
    capture: Capture | None = None
    exit_code: int | None = None  #: as interpreted (143 for a timeout), not as waited for
    allowlist: AllowlistCheck | None = None  #: after exit code 127
    output_digest: str | None = None
    tests: Tested | None = None  #: ``None``: it ran no tests of a work item
    cached: CachedFrom | None = None  #: ``None``: the result is the tool's own
    events: tuple[Recorded, ...] = ()
    #: What the attempt left behind when its runner was done: ``()`` is "checked, nothing",
    #: ``None`` is "not checked".
    leftovers: tuple[str, ...] | None = None
    #: Checks for leftovers, if that is still to be done: called last.
    cleanup: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)

    @property
    def ran(self) -> bool:
        return PROJECTIONS[self.outcome].tool_run is not None
