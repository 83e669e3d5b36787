"""What happened in a home, from its audit log: one entry for each thing that ended or was decided.

The log's order is that of the commits. Records that only prepare others (a decision, a PENDING) are
left out: their end is the entry, and an execution or work item that has none is listed as running.
A kind of record that this module does not know is listed by its name. Nothing here writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from actum.contract.model import Json
from actum.evidence.receipt_summaries import EXECUTION, WORK_ITEM, summary_of
from actum.evidence.records.audit import Kind
from actum.store.removed import CONTENTS, OUTPUTS
from actum.store.snapshot import Reader
from actum.value import replace, value

_PAGE = 500


@value
class Activity:
    time: str  #: RFC 3339 in UTC; a date alone if the record has no more
    kind: str
    outcome: str
    about: str = ""  #: a tool, an item, a gate: what it was about
    id: str = ""  #: as commands take it
    duration_ms: int | None = None
    denials: int = 0
    by: str = ""
    seq: int = 0  #: number of its audit record; 0 if it has none

    def document(self) -> dict[str, Json]:
        return {
            "time": self.time,
            "kind": self.kind,
            "outcome": self.outcome,
            "about": self.about or None,
            "id": self.id or None,
            "duration_ms": self.duration_ms,
            "denials": self.denials,
            "by": self.by or None,
            "seq": self.seq or None,
        }


def newest_first(database: Reader, *, after: int = 0) -> Iterator[Activity]:
    """Entries of the records behind number `after`, the newest first."""
    before: int | None = None
    while True:
        rows = database.rows(
            "SELECT seq, record FROM audit WHERE seq > ?1 AND (?2 IS NULL OR seq < ?2)"
            " ORDER BY seq DESC LIMIT ?3",
            (after, before, _PAGE),
        )
        for seq, record in rows:
            found = _entry(database, seq, json.loads(record))
            if found is not None:
                yield replace(found, seq=seq)
        if len(rows) < _PAGE:
            return
        before = rows[-1][0]


def newest_record(database: Reader) -> int:
    row = database.row("SELECT max(seq) FROM audit")
    return int(row[0]) if row and row[0] is not None else 0


def running(database: Reader) -> tuple[Activity, ...]:
    """Executions and work items that have begun and not ended."""
    executions = database.rows(
        "SELECT started_at, tool_id, execution_id FROM executions WHERE state = 'PENDING'"
    )
    items = database.rows("SELECT started_at, item_id, run_id FROM work_runs WHERE state = 'OPEN'")
    return tuple(
        Activity(time=row[0], kind=kind, outcome="running", about=row[1], id=row[2])
        for kind, rows in ((EXECUTION, executions), (WORK_ITEM, items))
        for row in rows
    )


def _entry(database: Reader, seq: int, record: dict[str, Any]) -> Activity | None:
    kind = str(record.get("kind"))
    describe = _DESCRIBED.get(kind)
    if describe is not None:
        return describe(database, seq, record)
    words = (record.get(name) for name in ("state", "event", "decision", "status"))
    return Activity(
        time=str(record.get("ts") or ""),
        kind=kind.lower().replace("_", " "),
        outcome=str(next((word for word in words if isinstance(word, str)), "recorded")).lower(),
    )


def _nothing(_database: Reader, _seq: int, _record: dict[str, Any]) -> None:
    return None


def _execution(database: Reader, seq: int, record: dict[str, Any]) -> Activity:
    row = database.row(
        "SELECT receipt_id, execution_id, final_seq, envelope FROM receipts"
        " WHERE execution_id = ? AND final_seq = ?",
        (record["execution_id"], seq),
    ) or database.row(
        # The record has the digest of an id that is no identifier.
        "SELECT receipt_id, execution_id, final_seq, envelope FROM receipts WHERE final_seq = ?",
        (seq,),
    )
    found = Activity(
        time=record["ts"],
        kind=EXECUTION,
        outcome=str(record["outcome"]),
        about=str(record["tool_id"]),
        id=str(record["execution_id"]),
        duration_ms=record["duration_ms"],
    )
    if row is None:
        return found
    receipt = summary_of(EXECUTION, *row)
    return replace(found, id=receipt.about, denials=receipt.denials, by=receipt.by)


def _work(database: Reader, seq: int, record: dict[str, Any]) -> Activity | None:
    row = database.row(
        "SELECT receipt_id, run_id, final_seq, envelope FROM work_receipts WHERE run_id = ?",
        (record.get("run_id"),),
    )
    if row is None or row[2] != seq:
        return None  # the record of its begin
    receipt = summary_of(WORK_ITEM, *row)
    return Activity(
        time=receipt.finished,
        kind=WORK_ITEM,
        outcome=receipt.outcome,
        about=receipt.work_item or "",
        id=receipt.receipt_id,
        duration_ms=receipt.duration_ms,
        by=receipt.by,
    )


_DECIDED = {"ALLOW": "approved", "DENY": "denied"}


def _approval(database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    request = str(record.get("request_id"))
    row = database.row("SELECT gate, document FROM approvals WHERE request_id = ?", (request,))
    gate, document = (row[0], json.loads(row[1])) if row else ("", {})
    event = str(record.get("event") or "decided")
    target = (document.get("action") or {}).get("target", "")
    return Activity(
        time=str(record["ts"]),
        kind="approval",
        outcome=_DECIDED.get(str(record.get("decision")), event),
        about=f"{gate} {target}".strip(),
        id=request,
        by=str(record.get("decided_by") or document.get("requested_by") or ""),
    )


def _changes(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    return Activity(
        time=record["ts"],
        kind="changes",
        outcome=str(record["state"]),
        id=str(record["execution_id"]),
    )


def _malformed(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    return Activity(
        time=record["ts"], kind="request", outcome=record["outcome"], about="not a contract"
    )


def _removed(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    counts = (f"{len(record[name])} {name}" for name in (CONTENTS, OUTPUTS) if name in record)
    return Activity(time=record["ts"], kind="gc", outcome="removed", about=", ".join(counts))


def _key(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    return Activity(
        time=record["ts"], kind="key", outcome="rotated", about=str(record["keyid"])[:16]
    )


def _standing(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity | None:
    if record["event"] == "used":
        return None  # the execution is listed
    return Activity(
        time=record["ts"],
        kind="standing approval",
        outcome=str(record["event"]),
        about=str(record["tool_id"]),
        id=str(record["approval_id"]),
        by=str(record["decided_by"]),
    )


_RUN_EVENTS = ("submitted", "continued", "cancel-requested", "refused", "brought-back")
_RUN_ENDS = ("complete", "failed", "cancelled")


def _run(database: Reader, _seq: int, record: dict[str, Any]) -> Activity | None:
    """A run was submitted, continued, taken over or ended. Its steps are listed as work items."""
    event, status = str(record["event"]), str(record["status"])
    ended = event == "status-changed" and status in _RUN_ENDS
    if event not in _RUN_EVENTS and not ended:
        return None
    run_id = str(record["run_id"])
    row = database.row(
        "SELECT requested_by, error_code FROM agent_runs WHERE run_id = ?", (run_id,)
    )
    return Activity(
        time=record["ts"],
        kind="run",
        outcome=status if ended else event,
        about=str(row[1] or "") if row and (ended or event == "refused") else "",
        id=run_id,
        by=str(row[0]) if row else "",
    )


def _action(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity | None:
    if record.get("event_type") == "action_audit" and record.get("status") != "PENDING":
        return Activity(
            time=record["ts"],
            kind="action",
            outcome=str(record["status"]),
            about=str(record.get("executor_id") or record.get("action") or ""),
            id=str(record.get("trace_id") or ""),
            duration_ms=record.get("duration_ms"),
        )
    return None


def _review(_database: Reader, _seq: int, record: dict[str, Any]) -> Activity:
    return Activity(
        time=record["ts"],
        kind="executor",
        outcome="approved" if record.get("approved") else "rejected",
        about=str(record.get("executor_id") or ""),
        by=str(record.get("by") or ""),
    )


_Describe = Callable[[Reader, int, dict[str, Any]], Activity | None]
_DESCRIBED: dict[str, _Describe] = {
    Kind.FINAL: _execution,
    Kind.WORK: _work,
    Kind.APPROVAL: _approval,
    Kind.STANDING: _standing,
    Kind.RUN: _run,
    Kind.CHANGES: _changes,
    Kind.MALFORMED: _malformed,
    Kind.KEY_ROTATE: _key,
    Kind.REMOVED: _removed,
    "ACTION": _action,
    "REVIEW": _review,
    Kind.DECISION: _nothing,
    Kind.PENDING: _nothing,
    Kind.ADOPTED: _nothing,
    Kind.ROWS: _nothing,
}
