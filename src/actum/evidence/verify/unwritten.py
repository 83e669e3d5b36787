"""A home as verification reads it: a snapshot of the database, with the journal's frames in it.

Frames are written out into tables in memory, by the same code that writes them out into the file,
under a checkpoint that is signed for this reading and not stored. The home is not changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from actum.errors import EvidenceUnavailable
from actum.evidence.journal_entry import signed
from actum.evidence.log import read_frames, stored_end, write_out
from actum.evidence.verify.findings import Finding
from actum.store.database import BUSY_TIMEOUT_S
from actum.store.frames import Frame
from actum.store.journal import FILE_NAME, Journal, JournalChanged
from actum.store.keys import Signer
from actum.store.snapshot import Snapshot, snapshot
from actum.store.write_out import Unfit, ready

#: Tables that frames are written out into.
_TABLES = (
    *("audit", "checkpoints", "executions", "receipts", "evidence_records", "trace_events"),
    "blobs",
)
#: The table that frames also delete rows of.
_WHOLE = ("open_actions",)
#: Rows that frames continue: those that they close, and the last trace event for its number.
_CONTINUED = (
    "INSERT INTO temp.executions SELECT * FROM main.executions WHERE state = 'PENDING'",
    "INSERT INTO temp.open_actions SELECT * FROM main.open_actions",
    "INSERT INTO temp.trace_events SELECT * FROM main.trace_events ORDER BY seq DESC LIMIT 1",
)


@contextmanager
def reading(home: Path, signer: Signer) -> Iterator[tuple[Snapshot, Finding]]:
    """A snapshot of the home, and whether its journal is intact.

    A journal that was changed is left out; the tables are read all the same.
    """
    with ExitStack() as opened:
        found, frames = _taken(home, signer, opened)
        yield found, _shown(found, frames, signer)


def _taken(
    home: Path, signer: Signer, opened: ExitStack
) -> tuple[Snapshot, list[Frame] | EvidenceUnavailable]:
    """Tables and frames of one moment: read under the write lock."""
    try:
        journal = Journal.open_to_read(home)
        opened.callback(journal.close)
        journal.acquire(BUSY_TIMEOUT_S)
    except EvidenceUnavailable as error:
        return opened.enter_context(snapshot(home)), error
    try:
        found = opened.enter_context(snapshot(home))
        return found, _frames_behind(found, journal, signer)
    finally:
        journal.release()


def _frames_behind(
    found: Snapshot, journal: Journal, signer: Signer
) -> list[Frame] | EvidenceUnavailable:
    try:
        row = found.row("SELECT max(seq) FROM audit")
        size = int(row[0] or 0) if row else 0
        frames = read_frames(journal, signer.macs(journal.salt), size)
        return [frame for frame in frames if frame.last > size]
    except EvidenceUnavailable as error:
        return error
    except (ValueError, struct.error) as error:
        return JournalChanged(journal.path, f"a frame cannot be read: {error}")


def _shown(found: Snapshot, frames: list[Frame] | EvidenceUnavailable, signer: Signer) -> Finding:
    if isinstance(frames, EvidenceUnavailable):
        return _frames(frames)
    if not frames:
        return Finding("journal", "frames", True)
    try:
        prepared = [ready(signed(each, signer)) for each in frames]
        end, _ = stored_end(found.cursor(), signer, found.path)
        with found.shadow(_TABLES, _WHOLE) as cursor:
            for statement in _CONTINUED:
                cursor.execute(statement)
            write_out(cursor, end, prepared, signer)
    except EvidenceUnavailable as error:
        return _frames(error)
    except (Unfit, ValueError) as error:
        path = found.path.with_name(FILE_NAME)
        return _frames(JournalChanged(path, f"the log does not take its frames: {error}"))
    return Finding("journal", "frames", True, f"{len(frames)} frames not written out yet")


def _frames(error: EvidenceUnavailable) -> Finding:
    return Finding("journal", "frames", False, error.message)
