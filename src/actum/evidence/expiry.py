"""`actum gc --keep`: removes contents that are older than an age. No record is removed.

contents   collected files that only executions from before the time list
outputs    raw output of executions that ended before it, and results that sessions answer from

Audit records, receipts, evidence records and trace events stay for good. A record of kind REMOVED
names what goes, and is durable before anything is removed. A crash leaves each item there or gone;
the next call removes what is left. Small contents go in the transaction of the record.

Nothing of an execution that is open is removed. A content that a running execution stores again is
not lost: its process marks the file as used, under a lock (`BlobStore.locked`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from actum.evidence.log import Log
from actum.evidence.records.audit import removed
from actum.evidence.records.trace import rfc3339
from actum.store.blobs import BlobStore, remove_small
from actum.store.database import Database
from actum.store.removed import CONTENTS, KIND, OUTPUTS
from actum.store.session_streams import SessionStore
from actum.value import value

_IN_ONE_RECORD = 500
_CACHED = "cached-"


@value
class Output:
    """The raw output of one execution."""

    session: str
    execution_id: str
    bytes: int


@value
class Expired:
    """What an age removes."""

    contents: Mapping[str, int]  #: BLAKE3 -> bytes
    outputs: tuple[Output, ...]
    cached: tuple[Path, ...]  #: results that a session answers from

    @property
    def output_bytes(self) -> int:
        return sum(each.bytes for each in self.outputs) + sum(map(_size, self.cached))


class Expiry:
    def __init__(
        self, database: Database, log: Log, blobs: BlobStore, sessions: SessionStore
    ) -> None:
        self._database = database
        self._log = log
        self._blobs = blobs
        self._sessions = sessions

    def expired(self, before: datetime) -> Expired:
        """What `remove` would remove now. Changes nothing."""
        with self._database.transaction() as cursor:
            return self._expired(cursor, before)

    def remove(self, before: datetime, at: datetime) -> Expired:
        """Record and remove everything from before a time."""
        self._database.rows("PRAGMA secure_delete = ON")  # freed pages keep no content
        with self._database.transaction() as cursor:
            found = self._expired(cursor, before)
        if found.contents or found.outputs:
            with self._log.page() as page:
                # Under the same lock as the record: executions may have ended since.
                found = self._expired(page.cursor, before)
                executions = [each.execution_id for each in found.outputs]
                for field, names in ((CONTENTS, sorted(found.contents)), (OUTPUTS, executions)):
                    for batch in _batches(names):
                        page.append(removed(field, batch, before, at))
                remove_small(page.cursor, found.contents)
        for blake3 in found.contents:
            self._blobs.remove_large(blake3, before.timestamp())
        for output in found.outputs:
            self._sessions.remove_output(output.session, output.execution_id)
        for path in found.cached:
            path.unlink(missing_ok=True)
        sessions = (each.session for each in found.outputs)
        for session in dict.fromkeys((*sessions, *(path.parent.name for path in found.cached))):
            if not self._is_in_use(session, rfc3339(before)):
                self._sessions.end_if_empty(session)
        return found

    def _is_in_use(self, session: str, earliest: str) -> bool:
        row = self._database.row(
            "SELECT 1 FROM executions WHERE session = ? AND (ended_at IS NULL OR ended_at >= ?)",
            (session, earliest),
        )
        return row is not None

    def _expired(self, cursor: sqlite3.Cursor, before: datetime) -> Expired:
        earliest = rfc3339(before)
        return Expired(
            contents=dict(self._contents(cursor, earliest)),
            outputs=tuple(self._outputs(cursor, earliest)),
            cached=tuple(self._cached_results(before.timestamp())),
        )

    def _contents(self, cursor: sqlite3.Cursor, earliest: str) -> Iterator[tuple[str, int]]:
        old: set[str] = set()
        needed: set[str] = set()
        for (text,) in cursor.execute("SELECT document FROM evidence_records"):
            document = json.loads(text)
            names = old if document["ended_at"] < earliest else needed
            names.update(file["blake3"] for file in document["files"])
        expired = old - needed
        for blake3, size in cursor.execute("SELECT blake3, length(content) FROM blobs"):
            if blake3 in expired:
                expired.discard(blake3)
                yield blake3, size
        for blake3 in expired:
            with contextlib.suppress(FileNotFoundError):
                yield blake3, os.lstat(self._blobs.path(blake3)).st_size

    def _outputs(self, cursor: sqlite3.Cursor, earliest: str) -> Iterator[Output]:
        for session in self._sessions.names():
            folder = self._sessions.root / session
            for execution in _folders(folder):
                row = cursor.execute(
                    "SELECT ended_at FROM executions WHERE execution_id = ?", (execution,)
                ).fetchone()
                if row is not None and row[0] is not None and row[0] < earliest:
                    size = sum(map(_size, (folder / execution).iterdir()))
                    yield Output(session=session, execution_id=execution, bytes=size)

    def _cached_results(self, earliest: float) -> Iterator[Path]:
        for session in self._sessions.names():
            for path in (self._sessions.root / session).glob(f"{_CACHED}*"):
                with contextlib.suppress(FileNotFoundError):
                    if os.lstat(path).st_mtime < earliest:
                        yield path


def removed_contents(records: Iterable[tuple[int, bytes]]) -> dict[str, int]:
    """BLAKE3 -> number of the newest of these audit records that says it was removed."""
    found: dict[str, int] = {}
    for seq, record in records:
        document = json.loads(record)
        if document.get("kind") == KIND:
            found.update(dict.fromkeys(document.get(CONTENTS, ()), seq))
    return found


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _IN_ONE_RECORD):
        yield names[start : start + _IN_ONE_RECORD]


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0
