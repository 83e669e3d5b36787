"""Writes frames of the journal out into their tables.

The tables of an execution have eight indexes. Filling them costs more than every other write at
its end, while the caller waits. So the end of an execution goes into the journal, durably, and
many entries are written out at once: by the background writer (`evidence.background_writer`),
before any read, before any other transaction, when the journal holds too many, and when the store
is closed. After a crash the next process that opens the store does it. Nothing else reads entries,
so no reader sees two versions of an execution.

A frame that does not continue the log is not written out, and neither is any frame behind it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from actum.store.frames import Frame
from actum.store.merkle import Edge, leaf_hash
from actum.store.note import Checkpoint
from actum.store.writer import (
    AuditRow,
    CheckpointRow,
    NotOpen,
    Row,
    Rows,
    event_rows,
    insert_audit,
    insert_checkpoints,
)
from actum.value import value

#: SQLite's codes for a row that a table cannot hold. Other errors (disk full) are raised.
_UNFIT = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}


class Unfit(Exception):
    """A frame does not continue the log, or a table rejects its rows; the text says why."""


@value(kw_only=False)
class End:
    """Where a log ends."""

    origin: str
    edge: Edge
    checkpoints: int = 0  #: how many there are
    signed: bool = True  #: whether the newest of them covers the whole log


@value(kw_only=False)
class Ready:
    """A frame whose receipts are signed, with everything of its rows that needs no lock."""

    frame: Frame
    leaves: tuple[bytes, ...]  #: hashes of its records
    events: tuple[tuple[Row, ...], ...]  #: rows of `trace_events`, for each end of an execution

    @property
    def last(self) -> int:
        return self.frame.last


def ready(frame: Frame) -> Ready:
    events = tuple(tuple(event_rows(row)) for row in frame.ended)
    return Ready(frame, tuple(map(leaf_hash, frame.records)), events)


def require_next(last: int, frame: Frame) -> None:
    """Raise `Unfit` unless `frame` begins with the record after number `last`."""
    if frame.last < frame.first or frame.first != last + 1:
        raise Unfit(f"it begins with audit record {frame.first} where {last + 1} is due")


def _continued(end: End, ready: Ready) -> tuple[End, list[AuditRow]]:
    """The end of the log after a frame, and the rows of its records."""
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


def write_frames(cursor: sqlite3.Cursor, end: End, frames: Iterable[Ready]) -> End:
    """Insert the rows of frames that continue the log from `end`; returns its new end."""
    rows = Rows()
    audit: list[AuditRow] = []
    checkpoints: list[CheckpointRow] = []
    for each in frames:
        end, records = _continued(end, each)
        audit += records
        if (note := each.frame.note) is not None:
            checkpoints.append((end.edge.size, end.checkpoints, note))
        _add(rows, each)
    try:
        insert_audit(cursor, audit)
        insert_checkpoints(cursor, checkpoints)
        rows.insert(cursor)
    except NotOpen as error:
        raise Unfit(f"it ends execution {error}, which is not open") from error
    except (sqlite3.Error, OverflowError) as error:
        # An error of Python's own argument conversion has no SQLite code.
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH) & 0xFF not in _UNFIT:
            raise
        raise Unfit(f"the tables do not take it ({error})") from error
    return end


def _add(rows: Rows, ready: Ready) -> None:
    frame = ready.frame
    for row in frame.started:
        rows.start(row)
    for row, events in zip(frame.ended, ready.events, strict=True):
        rows.end(row, events)
    rows.add_files(frame.files)
    for seq, owner in frame.actions:
        rows.start_action(seq, owner)
    for seq in frame.actions_ended:
        rows.end_action(seq)
