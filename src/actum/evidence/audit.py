"""Audit records: closed fields, exact bytes, one leaf of the log's tree each.

There is no field into which text of a caller, a tool or an operating system could flow: only
identifiers, words of closed sets, numbers and digests. Paths, arguments, output, environment and
error texts are deliberately absent. How they are kept and proven is `evidence.log`'s business.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, ActionStatus, Outcome
from actum.evidence.facts import ACTUM_VERSION, ExecutionFacts, Intent, policy_sha256
from actum.evidence.trace import rfc3339
from actum.value import fields, value

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")


class Kind(StrEnum):
    DECISION = "DECISION"
    PENDING = "PENDING"
    FINAL = "FINAL"
    MALFORMED = "MALFORMED"
    KEY_ROTATE = "KEY_ROTATE"  #: another key signs from here on
    WORK = "WORK"  #: a work item begins, or is over
    APPROVAL = "APPROVAL"  #: a person decided about a request
    ADOPTED = "ADOPTED"  #: records from before there were checkpoints are signed from here on


class Decision(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"


@value
class Audit:
    """One record; `document` is all of it."""

    v: int = 2
    kind: Kind
    ts: str
    execution_id: str | None
    trace_id: str | None
    attempt: int
    tool_id: str | None
    adapter_id: str | None
    versions: dict[str, Json]
    decision: Decision | None = None
    status: ActionStatus
    outcome: Outcome | None
    reason_codes: tuple[str, ...]
    input_digest: str
    output_digest: str | None = None
    policy_sha256: str | None
    contract_sha256: str | None
    receipt_sha256: str | None = None
    opening_sha256: str | None = None  #: of PENDING: what recovery would be based on
    duration_ms: int = 0

    @classmethod
    def pending(cls, intent: Intent, opening_sha256: str) -> Audit:
        """An attempt is about to begin."""
        return _record(
            intent,
            Kind.PENDING,
            ActionStatus.PENDING,
            ("EXECUTION_ATTEMPT",),
            opening_sha256=opening_sha256,
        )

    @classmethod
    def allowed(cls, intent: Intent) -> Audit:
        return _record(intent, Kind.DECISION, ActionStatus.PENDING, (), decision=Decision.ALLOW)

    @classmethod
    def denied(cls, facts: ExecutionFacts) -> Audit:
        status = PROJECTIONS[facts.outcome].action
        return _record(facts, Kind.DECISION, status, facts.reason_codes, decision=Decision.DENY)

    @classmethod
    def final(cls, facts: ExecutionFacts, receipt_sha256: str) -> Audit:
        """The one record that closes an execution."""
        return _record(
            facts,
            Kind.FINAL,
            PROJECTIONS[facts.outcome].action,
            facts.reason_codes,
            at=facts.ended_at,
            outcome=facts.outcome,
            output_digest=facts.output_digest,
            receipt_sha256=receipt_sha256,
            duration_ms=facts.duration_ms,
        )

    @classmethod
    def malformed(cls, body: bytes, at: datetime) -> Audit:
        """A document that is no contract: only the digest of its bytes is known of it."""
        return cls(
            kind=Kind.MALFORMED,
            ts=rfc3339(at),
            execution_id=None,
            trace_id=None,
            attempt=0,
            tool_id=None,
            adapter_id=None,
            versions={"actum": ACTUM_VERSION},
            status=ActionStatus.BLOCKED,
            outcome=Outcome.REJECTED,
            reason_codes=("CONTRACT_INVALID",),
            input_digest=sha256_bytes(body),
            policy_sha256=None,
            contract_sha256=None,
        )

    def document(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(field.name for field in fields(Audit))


def adopted(records: int, root: bytes, at: datetime) -> dict[str, Json]:
    """The record that `records` older ones, of this root, were taken over unsigned."""
    return {
        "v": 1,
        "kind": Kind.ADOPTED,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "records": records,
        "root": root.hex(),
    }


def closed(name: str | None) -> str | None:
    """An identifier as it is; anything else only as its digest, so that no text gets in."""
    if name is None or _IDENTIFIER.fullmatch(name):
        return name
    return f"sha256:{sha256_bytes(name.encode('utf-8', 'surrogatepass'))}"


def _policy(intent: Intent) -> str | None:
    if intent.proof is not None:
        return intent.proof.policy_sha256  # worked out when the proof was made
    return policy_sha256(intent.policy) if intent.policy else None


def _record(
    intent: Intent,
    kind: Kind,
    status: ActionStatus,
    reason_codes: tuple[str, ...],
    *,
    at: datetime | None = None,
    decision: Decision | None = None,
    outcome: Outcome | None = None,
    output_digest: str | None = None,
    receipt_sha256: str | None = None,
    opening_sha256: str | None = None,
    duration_ms: int = 0,
) -> Audit:
    return Audit(
        kind=kind,
        ts=rfc3339(at or intent.started_at),
        execution_id=closed(intent.execution_id),
        trace_id=closed(intent.trace_id),
        attempt=intent.attempt,
        tool_id=closed(intent.contract.tool_id),
        adapter_id=closed(intent.adapter.adapter_id if intent.adapter else None),
        versions={
            "actum": ACTUM_VERSION,
            "tool": closed(intent.tool.version) if intent.tool else None,
            "adapter": closed(intent.adapter.version) if intent.adapter else None,
        },
        decision=decision,
        status=status,
        outcome=outcome,
        reason_codes=tuple(closed(code) or "" for code in reason_codes),
        input_digest=intent.input_digest,
        output_digest=output_digest,
        policy_sha256=_policy(intent),
        contract_sha256=intent.contract_sha256,
        receipt_sha256=receipt_sha256,
        opening_sha256=opening_sha256,
        duration_ms=duration_ms,
    )
