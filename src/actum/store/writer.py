"""The only writer to the tables that hold evidence of executions.

Tables: `audit`, `checkpoints`, `executions`, `receipts`, `evidence_records`, `trace_events` and
`open_actions`. A transaction (`evidence.log.Page`) and the journal's write-out (`store.write_out`)
both call this module, so that a row has the same columns whichever way it came. Readers are in
`evidence/`. `tests/unit/test_one_writer.py` searches the source for a second writer.

Callers own the transaction: nothing here begins, commits or rolls back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from actum.contract.encoder import encode
from actum.store.blobs import insert_small
from actum.store.frames import ENDED, ENDED_DOCUMENTS, STARTED, STARTED_DOCUMENTS, Columns

#: A row of `audit`: its number, its bytes, and the tree nodes that it completes.
AuditRow = tuple[int, bytes, bytes]
#: A row of `checkpoints`: records covered, its number, the signed note.
CheckpointRow = tuple[int, int, str]
Row = tuple[Any, ...]

_AUDIT = "INSERT INTO audit (seq, record, nodes) VALUES (?, ?, ?)"
_CHECKPOINT = "INSERT INTO checkpoints (size, number, note) VALUES (?, ?, ?)"
_UNSIGNED_CHECKPOINT = "DELETE FROM checkpoints WHERE note = ''"
#: The newest entry about an id replaces its row.
_EXECUTION = """
INSERT INTO executions (execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    started_at, owner, pending_seq, opening, state, outcome, result_json, receipt_id, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (execution_id) DO UPDATE SET identity_sha256 = excluded.identity_sha256,
    contract_sha256 = excluded.contract_sha256, trace_id = excluded.trace_id,
    session = excluded.session, tool_id = excluded.tool_id, state = excluded.state,
    outcome = excluded.outcome, result_json = excluded.result_json,
    receipt_id = excluded.receipt_id, started_at = excluded.started_at,
    ended_at = excluded.ended_at, owner = excluded.owner, opening = excluded.opening,
    pending_seq = excluded.pending_seq
"""
_END = """
UPDATE executions SET state = 'FINAL', outcome = ?, result_json = ?, receipt_id = ?, ended_at = ?,
    owner = NULL, opening = NULL, pending_seq = NULL
WHERE execution_id = ? AND state = 'PENDING'
"""
_RECEIPT = """
INSERT INTO receipts (receipt_id, execution_id, evidence_id, final_seq, envelope, sha256)
VALUES (?, ?, ?, ?, ?, ?)
"""
_EVIDENCE_RECORD = """
INSERT INTO evidence_records (evidence_id, execution_id, evidence_ref, document)
VALUES (?, ?, ?, ?)
"""
_TRACE_EVENT = """
INSERT INTO trace_events (receipt_id, trace_id, execution_id, attempt, event_type, ts, tool_id,
    runner_type, container_id, duration_ms, outcome, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_EVENT_FIELDS = (
    *("trace_id", "execution_id", "attempt", "event_type", "ts", "tool_id", "runner_type"),
    *("container_id", "duration_ms", "outcome"),
)
_ACTION = "INSERT INTO open_actions (pending_seq, owner) VALUES (?, ?)"
_ACTION_END = "DELETE FROM open_actions WHERE pending_seq = ?"

#: Columns of a start that only recovery needs: owner, pending_seq, opening.
_FOR_RECOVERY = 3


class NotOpen(Exception):
    """The execution that a row ends is not PENDING; the text is its id."""


def started(*values: Any) -> Columns:
    """The columns of an execution that is about to start, in the order of `frames.STARTED`."""
    return dict(zip((*STARTED, *STARTED_DOCUMENTS), values, strict=True))


def ended(short: Iterable[Any], *documents: bytes) -> Columns:
    """The columns of its end, in the order of `frames.ENDED` and `ENDED_DOCUMENTS`."""
    texts = (document.decode() for document in documents)
    return dict(zip((*ENDED, *ENDED_DOCUMENTS), (*short, *texts), strict=True))


def event_rows(end: Columns) -> Iterator[Row]:
    """The rows of `trace_events` for the end of an execution."""
    for event in json.loads(end["events"]):
        data = event.get("data")
        text = None if data is None else encode(data).decode()
        yield (end["receipt_id"], *map(event.get, _EVENT_FIELDS), text)


class Rows:
    """The rows of one or many executions, collected by table; `insert` writes them."""

    def __init__(self) -> None:
        self._executions: dict[str, Row] = {}
        self._ends: list[Row] = []
        self._receipts: list[Row] = []
        self._records: list[Row] = []
        self._events: list[Row] = []
        self._files: dict[str, bytes] = {}
        self._actions: dict[int, str] = {}
        self._actions_ended: list[tuple[int]] = []

    def start(self, row: Columns) -> None:
        """Make an execution PENDING, or keep it so for its next attempt."""
        self._executions[row["execution_id"]] = (*row.values(), "PENDING", *[None] * 4)

    def end(self, row: Columns, events: Iterable[Row]) -> None:
        """Make an execution FINAL, with its receipt, evidence record and trace events."""
        execution = row["execution_id"]
        end = (row["outcome"], row["result_json"] or None, row["receipt_id"], row["ended_at"])
        begun = self._executions.get(execution)
        if begun is None:  # its start is in the table already
            self._ends.append((*end, execution))
        else:
            short = begun[: len(STARTED) + len(STARTED_DOCUMENTS) - _FOR_RECOVERY]
            self._executions[execution] = (*short, *[None] * _FOR_RECOVERY, "FINAL", *end)
        self.add_receipt(row, events)

    def add_receipt(self, row: Columns, events: Iterable[Row]) -> None:
        """A receipt, its evidence record and trace events, without a change to `executions`."""
        execution, evidence = row["execution_id"], row["evidence_id"]
        receipt = (row["receipt_id"], execution, evidence, row["final_seq"])
        self._receipts.append((*receipt, row["envelope"], row["sha256"]))
        self._records.append((evidence, execution, row["evidence_ref"], row["record"]))
        self._events += events

    def add_files(self, files: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
        """Small collected files, by BLAKE3."""
        self._files.update(files)

    def start_action(self, pending_seq: int, owner: str) -> None:
        """Make an action of the pure plane open."""
        self._actions[pending_seq] = owner

    def end_action(self, pending_seq: int) -> None:
        if self._actions.pop(pending_seq, None) is None:
            self._actions_ended.append((pending_seq,))

    def insert(self, cursor: sqlite3.Cursor) -> None:
        """Write all rows; raises `NotOpen`. Audit records that they refer to are there already."""
        for end in self._ends:
            if cursor.execute(_END, end).rowcount != 1:
                raise NotOpen(end[-1])
        cursor.executemany(_EXECUTION, self._executions.values())
        cursor.executemany(_RECEIPT, self._receipts)
        cursor.executemany(_EVIDENCE_RECORD, self._records)
        cursor.executemany(_TRACE_EVENT, self._events)
        insert_small(cursor, self._files)
        cursor.executemany(_ACTION, self._actions.items())
        cursor.executemany(_ACTION_END, self._actions_ended)


def insert_audit(cursor: sqlite3.Cursor, rows: Iterable[AuditRow]) -> None:
    cursor.executemany(_AUDIT, rows)


def insert_checkpoints(cursor: sqlite3.Cursor, rows: Iterable[CheckpointRow]) -> None:
    cursor.executemany(_CHECKPOINT, rows)


def remove_unsigned_checkpoint(cursor: sqlite3.Cursor) -> None:
    """Remove the checkpoint that a migration left; the table keeps every signed one."""
    cursor.execute(_UNSIGNED_CHECKPOINT)
