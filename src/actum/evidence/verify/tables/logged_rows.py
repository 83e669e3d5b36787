"""Tables whose rows audit records bind column by column (`evidence.records.bound_rows.BOUND`).

See `evidence.records.bound_rows` for how they are bound, and `evidence.adoption` for older rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.records.audit import Decision, closed
from actum.evidence.records.bound_rows import BOUND, differing, key_of
from actum.evidence.verify.decision_findings import recorded_decision
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.log_facts import BoundRow, LogFacts
from actum.evidence.verify.unbound import Unbound
from actum.store.snapshot import Snapshot

#: The name of a row in findings.
_NAMES = {
    "approvals": "approval",
    "standing_approvals": "standing approval",
    "work_runs": "work run",
    "server_tools": "tools of an MCP server",
    "agent_runs": "run",
    "run_contracts": "contract of a run",
    "agent_steps": "step of a run",
    "run_receipts": "receipt of a run",
    "run_decisions": "decision about a run",
}


def logged_findings(
    database: Snapshot, table: str, facts: LogFacts, unbound: Unbound
) -> Iterator[Finding]:
    """Every row of one table, and that none is missing."""
    names = database.columns(table)
    waiting = dict(facts.rows[table])
    places = {key: place for place, key in enumerate(waiting)}
    before = -1
    for values in database.scan(table, names):
        row = dict(zip(names, values, strict=True))
        subject = _subject(table, row)
        try:
            key = key_of(table, row)
        except LookupError as error:
            yield Finding(subject, "columns", False, f"{table}: the column {error} is missing")
            continue
        bound = waiting.pop(key, None)
        yield from guarded(subject, "columns", _row_findings(table, row, bound, facts, unbound))
        if bound is not None:
            if table == "approvals" and places[key] < before:
                detail = "approvals: its row comes behind that of a later request"
                yield Finding(subject, "order", False, detail)
            before = max(before, places[key])
    for key, bound in waiting.items():
        name = ", ".join(map(str, key))
        detail = f"{table}: its row is gone; audit record {bound.seq} binds it"
        yield Finding(f"{_NAMES[table]} {name}", "present", False, detail)


def _row_findings(
    table: str, row: dict[str, Any], bound: BoundRow | None, facts: LogFacts, unbound: Unbound
) -> Iterator[Finding]:
    subject = _subject(table, row)
    if table == "approvals":
        yield from _decision_findings(subject, row, facts)
    if bound is None:
        if facts.is_strict:
            yield Finding(subject, "record", False, f"{table}: no audit record is about this row")
        else:
            unbound.count(f"table {table}")
        return
    if bound.found:
        unbound.count_found(f"table {table}")
    wrong = [
        difference(f"{table}.{name}", expected, found)
        for name, expected, found in differing(table, bound.columns, row)
    ]
    if table == "standing_approvals" and row["last_seq"] != bound.seq:
        wrong.append(difference(f"{table}.last_seq", bound.seq, row["last_seq"]))
    detail = f"audit record {bound.seq} says otherwise: {'; '.join(wrong)}"
    yield judged(subject, "columns", not wrong, detail)


def _decision_findings(subject: str, row: dict[str, Any], facts: LogFacts) -> Iterator[Finding]:
    """The record of the decision, which also binds rows of older versions in part."""
    seq, record = facts.decisions.get(str(row["request_id"]), (None, {}))
    if row["decision_seq"] != seq:
        differs = difference("approvals.decision_seq", seq, row["decision_seq"])
        yield Finding(subject, "decision", False, differs)
        return
    if seq is None:
        return
    rationale = row["rationale"]
    states = ("approved", "used") if record.get("decision") == Decision.ALLOW else ("denied",)
    expected: dict[str, tuple[Json, Json]] = {
        "gate": (record.get("gate"), row["gate"]),
        "call_sha256": (record.get("call_sha256"), row["call_sha256"]),
        "decided_by": (record.get("decided_by"), closed(row["decided_by"])),
        "decided_at": (record.get("ts"), row["decided_at"]),
        "rationale": (record.get("rationale_sha256"), _sha256(rationale)),
        "state": (row["state"] if row["state"] in states else states[0], row["state"]),
    }
    wrong = [
        difference(f"approvals.{name}", wanted, found)
        for name, (wanted, found) in expected.items()
        if wanted != found
    ]
    yield Finding(subject, "decision", not wrong, "; ".join(wrong) or recorded_decision(record))


def _sha256(text: Any) -> str | None:
    return sha256_bytes(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else None


def _subject(table: str, row: dict[str, Any]) -> str:
    return f"{_NAMES[table]} {', '.join(str(row.get(name)) for name in BOUND[table].key)}"
