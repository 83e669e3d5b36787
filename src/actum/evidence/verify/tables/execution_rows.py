"""`executions`: each row matches its receipt, or the record of its start.

Repeated requests are answered from the row, and recovery would sign the row of an open execution. A
digest of the expected row is stored for each execution; only if it differs is the receipt read
again, to name the columns.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.evidence.executions import Opening
from actum.evidence.records.audit import closed
from actum.evidence.recovery import opened_with
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.predicates import expected_end, expected_start
from actum.store.snapshot import Reader, Snapshot
from actum.value import field, value

_COLUMNS = (
    *("execution_id", "identity_sha256", "contract_sha256", "trace_id", "session", "tool_id"),
    *("state", "outcome", "result_json", "receipt_id", "started_at", "ended_at"),
    *("owner", "opening", "pending_seq"),
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM executions"  # noqa: S608 -- constants


@value(kw_only=False)
class _Answer:
    receipt_id: str
    digest: bytes
    ran: bool


@value(frozen=False, kw_only=False)
class Answers:
    """Which receipt an execution's row has to repeat: the first that ran, or the last."""

    _found: dict[str, _Answer] = field(default_factory=dict)

    def add(self, predicate: dict[str, Json]) -> None:
        execution = predicate["execution_id"]
        known = self._found.get(execution)
        if known is not None and known.ran:
            return
        ran = PROJECTIONS[Outcome(predicate["outcome"])].tool_run is not None
        digest = _digest(expected_end(predicate))
        self._found[execution] = _Answer(predicate["receipt_id"], digest, ran)

    def pop(self, execution_id: str) -> _Answer | None:
        return self._found.pop(execution_id, None)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self._found)


def execution_findings(
    database: Snapshot, answers: Answers, unclosed: Mapping[str, int]
) -> Iterator[Finding]:
    """Every execution's row, and that none is missing. Uses `answers` up."""
    waiting = dict(unclosed)
    for values in database.scan("executions", _COLUMNS):
        row = dict(zip(_COLUMNS, values, strict=True))
        execution = row["execution_id"]
        answer = answers.pop(execution)
        started = waiting.pop(closed(execution) or "", None) if isinstance(execution, str) else None
        found = _row_findings(row, answer, started, database)
        yield from guarded(f"execution {execution}", "shape", found)
    for execution_id in answers.left:
        yield _gone(execution_id, "its receipt is here")
    for execution_id, seq in waiting.items():
        yield _gone(execution_id, f"audit record {seq} opened it and none closed it")


def _row_findings(
    row: Mapping[str, Any], answer: _Answer | None, started: int | None, database: Snapshot
) -> Iterator[Finding]:
    if started is not None or (answer is None and row["state"] == "PENDING"):
        yield _start_finding(row, started, database)
    elif answer is None:
        yield _unknown(row["execution_id"])
    elif _digest(_as_signed(row)) == answer.digest:
        yield Finding(f"execution {row['execution_id']}", "recorded result", True)
    else:
        yield _end_finding(row, _predicate(answer.receipt_id, database))


def one_execution(predicate: dict[str, Json], database: Reader) -> Iterator[Finding]:
    """The row of one receipt's execution, if it is that receipt's to judge."""
    found = database.row(f"{_SELECT} WHERE execution_id = ?", (predicate["execution_id"],))
    if found is None:
        yield _gone(predicate["execution_id"], "its receipt is here")
        return
    row = dict(zip(_COLUMNS, found, strict=True))
    # An id may have been refused before it ran: then another receipt has the say.
    if row["receipt_id"] == predicate["receipt_id"]:
        yield _end_finding(row, predicate)


def _end_finding(row: Mapping[str, Any], predicate: Mapping[str, Json]) -> Finding:
    expected, found = expected_end(predicate), _as_signed(row)
    differing = [
        difference(f"executions.{name}", expected[name], found[name])
        for name in _COLUMNS
        if found[name] != expected[name]
    ]
    subject = f"execution {row['execution_id']}"
    return judged(subject, "recorded result", not differing, "; ".join(differing))


def _as_signed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in the words of a receipt: of the result the digest, and no text as a tool's id."""
    result = row["result_json"]
    return {
        **row,
        "result_json": sha256_bytes(result.encode("utf-8", "surrogatepass"))
        if isinstance(result, str)
        else result,
        "tool_id": closed(row["tool_id"]) if isinstance(row["tool_id"], str) else row["tool_id"],
    }


def _digest(row: Mapping[str, Any]) -> bytes:
    content = repr([row[name] for name in _COLUMNS]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


def _predicate(receipt_id: str, database: Reader) -> dict[str, Json]:
    row = database.row("SELECT envelope FROM receipts WHERE receipt_id = ?", (receipt_id,))
    envelope = json.loads(row[0]) if row else {}
    predicate: dict[str, Json] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return predicate


def _start_finding(row: Mapping[str, Any], started: int | None, database: Reader) -> Finding:
    problem = _start_problem(row, started, database)
    return judged(f"execution {row['execution_id']}", "recorded start", not problem, problem)


def _start_problem(row: Mapping[str, Any], started: int | None, database: Reader) -> str:
    if started is None:
        return "executions.state: it is open, but its last record in the audit log closes it"
    of_an_open_one = {"state": "PENDING", "pending_seq": started} | dict.fromkeys(
        ("outcome", "result_json", "receipt_id", "ended_at")
    )
    for name, expected in of_an_open_one.items():
        if row[name] != expected:
            return difference(f"executions.{name}", expected, row[name])
    found = database.row("SELECT record FROM audit WHERE seq = ?", (started,))
    pending = json.loads(found[0]) if found else {}
    opening = Opening(owner=row["owner"] or "", document=(row["opening"] or "").encode())
    if pending.get("v") != 1 and pending.get("opening_sha256") != opening.sha256:
        announced = pending.get("opening_sha256")
        return difference("executions.owner and executions.opening", announced, opening.sha256)
    try:
        expected_row = expected_start(opened_with(json.loads(opening.document)))
    except ValueError:
        return "executions.opening: it is not JSON"
    found_row = _as_signed(row)
    return "; ".join(
        difference(f"executions.{name}", value, found_row[name])
        for name, value in expected_row.items()
        if found_row[name] != value
    )


def _unknown(execution_id: Json) -> Finding:
    detail = "executions: there is no receipt for this row, and no audit record opened it"
    return Finding(f"execution {execution_id}", "recorded result", False, detail)


def _gone(execution_id: str, why: str) -> Finding:
    detail = f"executions: its row is gone, but {why}"
    return Finding(f"execution {execution_id}", "present", False, detail)
