"""Audit records: closed fields, exact bytes, one RFC 6962 leaf each.

There is no field into which text of a caller, a tool or an operating system could flow: only
identifiers, words of closed sets, numbers and digests. Paths, arguments, output, environment and
error texts are deliberately absent. Only the ledger writes them, and always inside a transaction.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, ActionStatus, Outcome
from actum.evidence.encoding import encoded
from actum.evidence.facts import ACTUM_VERSION, ExecutionFacts, Intent, policy_sha256
from actum.evidence.trace import rfc3339

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")


class Kind(StrEnum):
    DECISION = "DECISION"
    PENDING = "PENDING"
    FINAL = "FINAL"
    MALFORMED = "MALFORMED"


class Decision(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One record; `document` is all of it."""

    v: int = 1
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
    duration_ms: int = 0

    @classmethod
    def pending(cls, intent: Intent) -> Audit:
        """An attempt is about to begin."""
        return _record(intent, Kind.PENDING, ActionStatus.PENDING, ("EXECUTION_ATTEMPT",))

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


def append(cursor: sqlite3.Cursor, record: Audit) -> int:
    """Add one record to the log and return its number, counted from 1 without gaps."""
    return append_document(cursor, record.document())


def append_document(cursor: sqlite3.Cursor, document: dict[str, Json]) -> int:
    """`append`, for a record that continues one already in the log."""
    record = encoded(document)
    cursor.execute(
        "INSERT INTO audit (record, leaf_hash) VALUES (?, ?)", (record, leaf_hash(record))
    )
    return int(cursor.lastrowid or 0)


def read(cursor: sqlite3.Cursor, seq: int) -> dict[str, Json]:
    row = cursor.execute("SELECT record FROM audit WHERE seq = ?", (seq,)).fetchone()
    document: dict[str, Json] = json.loads(row[0])
    return document


def leaf_hash(record: bytes) -> str:
    """RFC 6962: the zero byte keeps a leaf from ever being taken for an inner node."""
    return hashlib.sha256(b"\x00" + record).hexdigest()


def closed(name: str | None) -> str | None:
    """An identifier as it is; anything else only as its digest, so that no text gets in."""
    if name is None or _IDENTIFIER.fullmatch(name):
        return name
    return f"sha256:{sha256_bytes(name.encode('utf-8', 'surrogatepass'))}"


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
        policy_sha256=policy_sha256(intent.policy) if intent.policy else None,
        contract_sha256=intent.contract_sha256,
        receipt_sha256=receipt_sha256,
        duration_ms=duration_ms,
    )
