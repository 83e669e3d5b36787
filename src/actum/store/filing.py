"""Puts frames of the journal where they belong: what is kept of an execution has four tables.

They have eight indexes, and filling them costs more than anything else that is written at the end
of an execution, while the caller waits. So it is laid into the journal, durably, and filed many at
a time: while nobody is being served (`evidence.clerk`), before anything is read, before any other
transaction, when too many lie there, and when the store is closed. After a crash whoever opens the
store next does it. Nobody reads the journal for any other purpose, so there is no second way to
tell a story.

A frame that the log does not continue with is not filed, and neither is anything behind it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from actum.contract.encoder import encode
from actum.store.blobs import insert_small
from actum.store.frames import Columns, Frame
from actum.store.merkle import Edge, leaf_hash
from actum.store.note import Checkpoint
from actum.value import value

#: A row of `executions` says what was said last of its id.
REPLACING = """
ON CONFLICT (execution_id) DO UPDATE SET identity_sha256 = excluded.identity_sha256,
    contract_sha256 = excluded.contract_sha256, trace_id = excluded.trace_id,
    session = excluded.session, tool_id = excluded.tool_id, state = excluded.state,
    outcome = excluded.outcome, result_json = excluded.result_json,
    receipt_id = excluded.receipt_id, started_at = excluded.started_at,
    ended_at = excluded.ended_at, owner = excluded.owner, opening = excluded.opening,
    pending_seq = excluded.pending_seq
"""
_EXECUTIONS = f"""
INSERT INTO executions (execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    started_at, owner, pending_seq, opening, state, outcome, result_json, receipt_id, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
{REPLACING}"""  # noqa: S608 -- all of it stands here
_END = """
UPDATE executions SET state = 'FINAL', outcome = ?, result_json = ?, receipt_id = ?, ended_at = ?,
    owner = NULL, opening = NULL, pending_seq = NULL
WHERE execution_id = ? AND state = 'PENDING'
"""
_RECEIPTS = """
INSERT INTO receipts (receipt_id, execution_id, evidence_id, final_seq, envelope, sha256)
VALUES (?, ?, ?, ?, ?, ?)
"""
_RECORDS = """
INSERT INTO evidence_records (evidence_id, execution_id, evidence_ref, document)
VALUES (?, ?, ?, ?)
"""
_EVENT = (
    *("trace_id", "execution_id", "attempt", "event_type", "ts", "tool_id", "runner_type"),
    *("container_id", "duration_ms", "outcome"),
)
_EVENTS = f"""
INSERT INTO trace_events (receipt_id, {", ".join(_EVENT)}, data)
VALUES (?, {"?, " * len(_EVENT)}?)
"""  # noqa: S608 -- all of it stands here
#: What the tables say of a row that they cannot hold. Anything else (no room) is the disk's.
_UNFIT = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}


class Unfit(Exception):
    """A frame that does not continue the log, or that no table takes; the text says why."""


@value(kw_only=False)
class End:
    """Where a log ends."""

    origin: str
    edge: Edge
    checkpoints: int = 0  #: how many there are
    signed: bool = True  #: whether the newest of them is over all of it


@value(kw_only=False)
class Ready:
    """A frame whose receipts are signed, and all that its rows need and can be worked out."""

    frame: Frame
    leaves: tuple[bytes, ...]  #: hashes of its records
    events: tuple[tuple[Any, ...], ...]  #: rows

    @property
    def last(self) -> int:
        return self.frame.last


def ready(frame: Frame) -> Ready:
    events = [
        (row["receipt_id"], *_event(event))
        for row in frame.ended
        for event in json.loads(row["events"])
    ]
    return Ready(frame, tuple(map(leaf_hash, frame.records)), tuple(events))


def _event(event: Columns) -> Iterator[Any]:
    yield from map(event.get, _EVENT)
    data = event.get("data")
    yield None if data is None else encode(data).decode()


def require_next(last: int, frame: Frame) -> None:
    """That `frame` has the records behind number `last`."""
    if frame.last < frame.first or frame.first != last + 1:
        raise Unfit(f"it begins with audit record {frame.first} where {last + 1} is due")


def _continued(end: End, ready: Ready) -> tuple[End, list[tuple[int, bytes, bytes]]]:
    """Where the log ends behind a frame, and the rows of its records."""
    edge, rows, frame = end.edge, [], ready.frame
    require_next(edge.size, frame)
    for record, leaf in zip(frame.records, ready.leaves, strict=True):
        edge, nodes = edge.grown(leaf)
        rows.append((edge.size, record, nodes))
    if frame.note is None:
        return End(end.origin, edge, end.checkpoints, signed=False), rows
    signed = Checkpoint(origin=end.origin, size=edge.size, root=edge.root)
    if not frame.note.startswith(f"{signed.text}\n"):
        raise Unfit(f"its checkpoint is not over audit records 1 to {edge.size}")
    return End(end.origin, edge, end.checkpoints + 1), rows


class _Rows:
    """What several frames put into each table."""

    def __init__(self) -> None:
        self.audit: list[tuple[int, bytes, bytes]] = []
        self.checkpoints: list[tuple[int, int, str]] = []
        self.executions: dict[str, tuple[str | None, ...]] = {}
        self.ends: list[tuple[str | None, ...]] = []
        self.receipts: list[tuple[str, ...]] = []
        self.records: list[tuple[str, ...]] = []
        self.events: list[tuple[Any, ...]] = []
        self.files: dict[str, bytes] = {}
        self.actions: dict[int, str] = {}
        self.actions_ended: list[tuple[int]] = []

    def add(self, ready: Ready) -> None:
        frame = ready.frame
        self.events += ready.events
        for row in frame.started:
            self.executions[row["execution_id"]] = (*row.values(), "PENDING", *[None] * 4)
        for row in frame.ended:
            self._end(row)
        self.files.update(frame.files)
        self.actions.update(frame.actions)
        for seq in frame.actions_ended:
            if self.actions.pop(seq, None) is None:
                self.actions_ended.append((seq,))

    def _end(self, row: Columns) -> None:
        execution, receipt, evidence = row["execution_id"], row["receipt_id"], row["evidence_id"]
        end = (row["outcome"], row["result_json"] or None, receipt, row["ended_at"])
        begun = self.executions.get(execution)
        if begun is None:  # it was filed while it ran
            self.ends.append((*end, execution))
        else:
            # What was written down for the case that nobody comes back never gets into a table.
            self.executions[execution] = (*begun[:7], None, None, None, "FINAL", *end)
        self.receipts.append(
            (receipt, execution, evidence, row["final_seq"], row["envelope"], row["sha256"])
        )
        self.records.append((evidence, execution, row["evidence_ref"], row["record"]))

    def insert(self, cursor: sqlite3.Cursor) -> None:
        cursor.executemany("INSERT INTO audit (seq, record, nodes) VALUES (?, ?, ?)", self.audit)
        cursor.executemany(
            "INSERT INTO checkpoints (size, number, note) VALUES (?, ?, ?)", self.checkpoints
        )
        for end in self.ends:
            if cursor.execute(_END, end).rowcount != 1:
                raise Unfit(f"it ends execution {end[-1]}, which is not open")
        cursor.executemany(_EXECUTIONS, self.executions.values())
        cursor.executemany(_RECEIPTS, self.receipts)
        cursor.executemany(_RECORDS, self.records)
        cursor.executemany(_EVENTS, self.events)
        insert_small(cursor, self.files)
        cursor.executemany(
            "INSERT INTO open_actions (pending_seq, owner) VALUES (?, ?)", self.actions.items()
        )
        cursor.executemany("DELETE FROM open_actions WHERE pending_seq = ?", self.actions_ended)


def file_away(cursor: sqlite3.Cursor, end: End, lying: Iterable[Ready]) -> End:
    """Put frames, which continue the log from `end`, into their tables; returns its new end."""
    rows = _Rows()
    for each in lying:
        end, audit = _continued(end, each)
        rows.audit += audit
        if (note := each.frame.note) is not None:
            rows.checkpoints.append((end.edge.size, end.checkpoints, note))
        rows.add(each)
    try:
        rows.insert(cursor)
    except (sqlite3.Error, OverflowError) as error:
        # What Python could not even hand over has no code.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH) & 0xFF not in _UNFIT:
            raise
        raise Unfit(f"the tables do not take it ({error})") from error
    return end
