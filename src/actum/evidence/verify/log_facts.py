"""The facts of the audit log about rows and files, collected in one pass.

It stores only what rows are compared with, and only digests of closing records: some hundred bytes
per execution. `evidence.verify.log_findings` reads the log and checks the log itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from actum.contract.model import Json
from actum.evidence.adoption import is_binding
from actum.evidence.records.audit import Decision, Kind
from actum.evidence.records.bound_rows import BOUND, ROWS, key_in
from actum.evidence.records.encoding import encoded
from actum.store.removed import CONTENTS
from actum.value import field, value

#: Fields of the record that closes an execution, which its receipt repeats.
CLOSING = (
    *("kind", "receipt_sha256", "execution_id", "trace_id", "attempt", "tool_id", "adapter_id"),
    *("outcome", "cached", "reason_codes", "input_digest", "output_digest", "policy_sha256"),
    *("contract_sha256", "duration_ms"),
)


def digest_of(document: Mapping[str, Json]) -> bytes:
    """A digest of these fields: compared for every execution, instead of storing them."""
    content = encoded([document.get(name) for name in CLOSING])
    return hashlib.blake2b(content, digest_size=16).digest()


@value(kw_only=False)
class BoundRow:
    """A row as the newest record that binds it says it is."""

    seq: int
    columns: Mapping[str, Json]
    found: bool = False  #: an older version wrote it, and it was bound as it was found later


@value(kw_only=False)
class Closing:
    """The record that names a receipt."""

    table: str  #: that holds the receipt
    receipt_sha256: Json
    digest: bytes


@value(kw_only=False)
class SettledChanges:
    """The decision about a transaction after its execution was closed."""

    state: str
    record_sha256: str


@value(frozen=False, kw_only=False)
class LogFacts:
    #: Executions that were opened and not closed: id -> number of their last PENDING record.
    unclosed: dict[str, int] = field(default_factory=dict)
    #: Records that name a receipt, by their number.
    closings: dict[int, Closing] = field(default_factory=dict)
    #: Work runs: the newest record about each, by run.
    work: dict[str, tuple[int, dict[str, Json]]] = field(default_factory=dict)
    #: Actions of the pure plane that are open: number -> digest of the owner; ``None`` is unknown.
    actions: dict[int, Json] = field(default_factory=dict)
    #: Executor reviews, in order: number of the record, and the digest of the envelope.
    reviews: list[tuple[int, Json]] = field(default_factory=list)
    #: Decisions about requests: number of the record, and the record.
    decisions: dict[str, tuple[int, dict[str, Json]]] = field(default_factory=dict)
    #: Transactions that were decided, undone or removed later.
    changes: dict[str, SettledChanges] = field(default_factory=dict)
    #: Contents that were removed by their age: BLAKE3 -> the newest record that says so, and when.
    removed: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: Rows by table and key.
    rows: dict[str, dict[tuple[Json, ...], BoundRow]] = field(
        default_factory=lambda: {table: {} for table in BOUND}
    )
    records: int = 0
    binds: bool = False  #: a version that binds every row has written to this log
    _denied: str | None = None

    @property
    def is_strict(self) -> bool:
        """Whether a row without a record is foreign. In a log of older versions alone it may be
        theirs; no version wrote a row before its first record."""
        return self.binds or not self.records

    def add(self, seq: int, document: dict[str, Any]) -> None:
        self.records += 1
        self.binds = self.binds or is_binding(document)
        kind = document.get("kind")
        if document.get("receipt_sha256") is not None:
            table = "work_receipts" if kind == Kind.WORK else "receipts"
            self.closings[seq] = Closing(table, document["receipt_sha256"], digest_of(document))
        self._execution(seq, kind, document)
        if kind == Kind.WORK:
            self.work[str(document.get("run_id"))] = (seq, document)
        elif kind == "ACTION":
            self._action(seq, document)
        elif kind == "REVIEW":
            self.reviews.append((seq, document.get("verdict_sha256")))
        elif kind == Kind.APPROVAL and document.get("decision") is not None:
            self.decisions[str(document.get("request_id"))] = (seq, document)
        elif kind == Kind.REMOVED:
            about = (seq, str(document.get("ts")))
            self.removed.update(dict.fromkeys(document.get(CONTENTS, ()), about))
        elif kind == Kind.CHANGES:
            self.changes[str(document.get("transaction"))] = SettledChanges(
                str(document.get("state")), str(document.get("record_sha256"))
            )
        for row in document.get(ROWS) or ():
            table, columns = row["table"], row["columns"]
            bound = BoundRow(seq, columns, kind == Kind.ROWS)
            self.rows.setdefault(table, {})[key_in(table, columns)] = bound

    def _execution(self, seq: int, kind: Json, document: dict[str, Any]) -> None:
        execution = str(document.get("execution_id"))
        if kind == Kind.PENDING:
            self.unclosed[execution] = seq
        elif kind == Kind.FINAL and self._denied != execution:
            self.unclosed.pop(execution, None)
        # A refusal of an id that is running closes nothing: it is a decision and its own end.
        refused = kind == Kind.DECISION and document.get("decision") == Decision.DENY
        self._denied = execution if refused else None

    def _action(self, seq: int, document: dict[str, Any]) -> None:
        if document.get("event_type") != "action_audit":
            return
        if document.get("status") == "PENDING":
            self.actions[seq] = document.get("owner_sha256")
        elif document.get("pending_seq") is not None:
            self.actions.pop(document["pending_seq"], None)
