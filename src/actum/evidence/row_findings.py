"""The rows that prove nothing by themselves, held against what is signed: executions and strays.

An execution's row answers for its id, and a started one's row is what recovery would sign. So each
must say exactly what its receipt, or the record of its start, says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from actum.contract.canonical import blake3_bytes, sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.evidence.audit import closed
from actum.evidence.executions import Opening
from actum.evidence.findings import Finding, judged
from actum.evidence.recovery import expected_start
from actum.store.database import SCHEMA, Database, expected_schema, schema_of
from actum.store.journal import JournalChanged
from actum.value import value

_COLUMNS = (
    *("execution_id", "identity_sha256", "contract_sha256", "trace_id", "session", "tool_id"),
    *("state", "outcome", "result_json", "receipt_id", "started_at", "ended_at"),
    *("owner", "opening", "pending_seq"),
)
_SELECT = """
SELECT execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id, state, outcome,
    result_json, receipt_id, started_at, ended_at, owner, opening, pending_seq
FROM executions
"""


@value(frozen=False, kw_only=False)
class Answers:
    """Which signed statement an execution's row has to repeat: the first that ran, or the last."""

    _found: dict[str, tuple[dict[str, Json], bool]]

    def add(self, predicate: dict[str, Json]) -> None:
        execution = predicate["execution_id"]
        if execution in self._found and self._found[execution][1]:
            return
        ran = PROJECTIONS[Outcome(predicate["outcome"])].tool_run is not None
        self._found[execution] = (_brief(predicate), ran)

    def pop(self, execution_id: str) -> dict[str, Json] | None:
        return self._found.pop(execution_id, (None, False))[0]

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self._found)


def execution_findings(
    database: Database, answers: Answers, unclosed: Mapping[str, int]
) -> Iterator[Finding]:
    """Every execution's row, and that none is missing. Uses `answers` up."""
    unclosed = dict(unclosed)
    last = ""
    while rows := database.rows(
        f"{_SELECT} WHERE execution_id > ? ORDER BY execution_id LIMIT 500", (last,)
    ):
        for values in rows:
            row = dict(zip(_COLUMNS, values, strict=True))
            signed = answers.pop(row["execution_id"])
            started = unclosed.pop(closed(row["execution_id"]) or "", None)
            yield row_finding(row, signed, started, database)
        last = rows[-1][0]
    for execution_id in answers.left:
        yield _gone(execution_id, "its receipt is here")
    for execution_id, seq in unclosed.items():
        yield _gone(execution_id, f"audit record {seq} opened it and none closed it")


def one_execution(predicate: dict[str, Json], database: Database) -> Iterator[Finding]:
    """The row of one receipt's execution, if it is that receipt's to judge."""
    found = database.row(f"{_SELECT} WHERE execution_id = ?", (predicate["execution_id"],))
    if found is None:
        yield _gone(predicate["execution_id"], "its receipt is here")
        return
    row = dict(zip(_COLUMNS, found, strict=True))
    # An id may have been refused before it ran: then another receipt has the say.
    if row["receipt_id"] == predicate["receipt_id"]:
        yield row_finding(row, _brief(predicate), None, database)


def row_finding(
    row: Mapping[str, Json], signed: dict[str, Json] | None, started: int | None, database: Database
) -> Finding:
    subject = f"execution {row['execution_id']}"
    if started is not None or (signed is None and row["state"] == "PENDING"):
        problem = _pending_problem(row, started, database)
        return judged(subject, "recorded start", not problem, problem)
    if signed is None:
        return Finding(subject, "recorded result", False, "there is no receipt for it")
    result = row["result_json"]
    found = {
        **row,
        "result_json": None if result is None else sha256_bytes(result.encode()),
        "tool_id": closed(row["tool_id"]),
    }
    differing = [name for name in _COLUMNS if found[name] != signed[name]]
    return judged(subject, "recorded result", not differing, f"other {', '.join(differing)}")


def _brief(predicate: Mapping[str, Json]) -> dict[str, Json]:
    """A FINAL row as its receipt would have it."""
    return {
        **_started(predicate),
        "state": "FINAL",
        "outcome": predicate["outcome"],
        "result_json": predicate["result_sha256"],
        "receipt_id": predicate["receipt_id"],
        "ended_at": predicate["time"]["finished"],
        "owner": None,
        "opening": None,
        "pending_seq": None,
    }


def _started(predicate: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "execution_id": predicate["execution_id"],
        "identity_sha256": predicate["contract"]["identity_sha256"],
        "contract_sha256": predicate["contract"]["sha256"],
        "trace_id": predicate["trace_id"],
        "session": predicate["session"],
        "tool_id": closed(predicate["tool"]["id"]),
        "started_at": predicate["time"]["started"],
    }


def _pending_problem(row: Mapping[str, Json], started: int | None, database: Database) -> str:
    if started is None:
        return "it is open, but its last record in the audit log closes it"
    if row["state"] != "PENDING" or row["pending_seq"] != started:
        return f"audit record {started} opened it; its row says otherwise"
    if any(row[name] is not None for name in ("outcome", "result_json", "receipt_id", "ended_at")):
        return "it is open and yet has an end"
    found = database.row("SELECT record FROM audit WHERE seq = ?", (started,))
    pending = json.loads(found[0]) if found else {}
    opening = Opening(owner=row["owner"] or "", document=(row["opening"] or "").encode())
    if pending.get("v") != 1 and pending.get("opening_sha256") != opening.sha256:
        return "other owner or opening than the log announced"
    try:
        expected = _started(expected_start(json.loads(opening.document)))
    except ValueError:
        return "what was written before its start is no JSON any more"
    found_values = {**row, "tool_id": closed(row["tool_id"])}
    differing = [name for name, value in expected.items() if found_values[name] != value]
    return f"other {', '.join(differing)}" if differing else ""


def stray_findings(database: Database) -> Iterator[Finding]:
    """What no receipt has signed, and what is missing between numbers."""
    for (evidence_id,) in database.rows(
        "SELECT evidence_id FROM evidence_records"
        " WHERE evidence_id NOT IN (SELECT evidence_id FROM receipts)"
    ):
        yield Finding(f"evidence record {evidence_id}", "receipt", False, "no receipt signs it")
    for (execution_id,) in database.rows(
        "SELECT DISTINCT execution_id FROM trace_events"
        " WHERE receipt_id NOT IN (SELECT receipt_id FROM receipts)"
    ):
        yield Finding(f"trace of {execution_id}", "receipt", False, "no receipt signs these events")
    counted = database.row("SELECT count(*), coalesce(max(seq), 0), min(seq) FROM trace_events")
    assert counted is not None  # noqa: S101 -- an aggregate always has a row
    gapless = counted[0] == counted[1] and counted[2] in (1, None)
    yield judged("trace events", "order", gapless, "their numbers have gaps")
    last = 0
    while rows := database.rows(
        "SELECT rowid, blake3, content FROM blobs WHERE rowid > ? ORDER BY rowid LIMIT 50", (last,)
    ):
        for _, blake3, content in rows:
            if blake3_bytes(content) != blake3:
                yield Finding(f"file content {blake3}", "content", False, "it was changed")
        last = rows[-1][0]


def journal_finding(database: Database) -> Finding:
    """That what lies in the journal is what was laid there; whoever looks files it."""
    try:
        database.row("SELECT 1")
    except JournalChanged as error:
        return Finding("journal", "frames", False, error.message)
    return Finding("journal", "frames", True)


def file_findings(database: Database) -> Iterator[Finding]:
    """The database file as such: sound pages, and the tables and triggers it should have."""
    (answer,) = database.rows("PRAGMA quick_check(1)")[0]
    yield judged("database", "pages", answer == "ok", str(answer))
    expected, found = expected_schema(), schema_of(database.rows(SCHEMA))
    differing = sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )
    yield judged("database", "schema", not differing, f"other {', '.join(differing)}")


def _gone(execution_id: str, why: str) -> Finding:
    return Finding(f"execution {execution_id}", "present", False, f"its row is gone, but {why}")
