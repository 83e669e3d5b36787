"""Collected files, addressed by their BLAKE3.

Small ones are rows of the database, so that they share the one sync of the record that names them.
Larger ones are files, `.actum/evidence/<first two>/<all 64>`, each with a sync of its own before
that record is written: a file appears under its name only when all of it is on the disk. The same
content is stored once. Every read checks the digest, so that changed content is never returned as
evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from actum.contract.canonical import blake3_bytes
from actum.errors import ActumError, EvidenceUnavailable, Refused, VerificationFailed
from actum.store.database import Database
from actum.store.removed import CONTENTS, removal_of
from actum.store.whole_file import write_whole

#: Content up to this size goes into the database.
SMALL_BYTES = 262_144

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    def __init__(self, home: str | os.PathLike[str], database: Database | None = None) -> None:
        self.root = Path(home) / "evidence"
        self._folder = (
            f"{self.root}/"  #: the trailing slash makes access() fail for anything but a directory
        )
        self._database = database

    def prepare(self) -> None:
        """Check that files can be stored; raises before anything depends on it."""
        if os.access(self._folder, os.W_OK | os.X_OK):
            return
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_keep(self.root, error) from error
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise _cannot_keep(self.root, PermissionError(13, "Permission denied"))

    @property
    def closed(self) -> bool:
        return self._database is not None and self._database.closed

    def path(self, blake3: str) -> Path:
        # The digest may come from an edited document: it must not traverse directories.
        if not _NAME.fullmatch(blake3):
            raise VerificationFailed(f"{blake3[:80]!r} is not a BLAKE3 digest of 64 hex digits.")
        return self.root / blake3[:2] / blake3

    def put(self, content: bytes) -> str:
        """Store `content` durably and return its address. A damaged copy is replaced."""
        if self._database is not None and self._takes(content):
            with self._database.transaction() as cursor:
                insert_small(cursor, small := self.small([content]))
                return next(iter(small))
        return self._put_file(content)

    def put_large(self, contents: Iterable[bytes]) -> set[str]:
        """Store contents that are too large for the database; the rest is for `insert_small`."""
        return {self._put_file(each) for each in contents if not self._takes(each)}

    def small(self, contents: Iterable[bytes]) -> dict[str, bytes]:
        """Contents that are small enough for the database, by address."""
        return {blake3_bytes(each): each for each in contents if self._takes(each)}

    def _takes(self, content: bytes) -> bool:
        return self._database is not None and len(content) <= SMALL_BYTES

    def _put_file(self, content: bytes) -> str:
        blake3 = blake3_bytes(content)
        path = self.path(blake3)
        try:
            with self.locked(exclusive=False):
                if _holds(path, blake3):
                    os.utime(path)
                else:
                    _write(path, content)
        except OSError as error:
            raise _cannot_keep(path, error) from error
        return blake3

    def remove_large(self, blake3: str, before: float) -> None:
        """Remove a file that nobody has stored or stored again since a time."""
        path = self.path(blake3)
        with self.locked(exclusive=True), contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_mtime < before:
                path.unlink()

    @contextlib.contextmanager
    def locked(self, *, exclusive: bool) -> Iterator[None]:
        """Who finds a content stored marks it as used, under the shared lock; who removes one looks
        at that mark, under the exclusive one. So nothing is removed that is about to be named."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def read(self, blake3: str) -> bytes:
        """The content of an address, checked against its digest."""
        path = self.path(blake3)
        row = None
        if self._database is not None:
            row = self._database.row("SELECT content FROM blobs WHERE blake3 = ?", (blake3,))
        if row is not None:
            if blake3_bytes(row[0]) != blake3:
                raise VerificationFailed(
                    f"The evidence {blake3} in the database does not have the content it was"
                    " stored with.",
                    remedy="Restore it from a backup.",
                )
            return bytes(row[0])
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise self._missing(blake3) from error
        except OSError as error:
            raise EvidenceUnavailable(
                f"The evidence file {path} cannot be read: {error.strerror}.",
                remedy="Check its owner and mode.",
            ) from error
        if blake3_bytes(content) != blake3:
            raise VerificationFailed(
                f"The evidence file {path} does not have the content it was stored with.",
                remedy="Restore it from a backup.",
            )
        return content

    def _missing(self, blake3: str) -> ActumError:
        gone = removal_of(self._database, CONTENTS, blake3) if self._database else None
        if gone is None:
            return VerificationFailed(
                f"The evidence file {blake3} is missing.", remedy="Restore it from a backup."
            )
        return Refused(
            "CONTENT_REMOVED",
            f"The content {blake3} was removed by `actum gc --keep` on {gone.at}.",
            remedy="The evidence record has its name, size and digests; a backup may have it. An"
            " export can leave files out, or begin with newer executions (--since).",
        )


def remove_small(cursor: sqlite3.Cursor, blake3s: Iterable[str]) -> None:
    """Remove contents of the database in the transaction of `cursor`."""
    cursor.executemany("DELETE FROM blobs WHERE blake3 = ?", [(each,) for each in blake3s])


def insert_small(cursor: sqlite3.Cursor, contents: Mapping[str, bytes]) -> None:
    """Store `contents` in the transaction of `cursor`. A damaged copy is replaced."""
    if not contents:
        return
    cursor.executemany(
        "INSERT INTO blobs (blake3, content) VALUES (?, ?) ON CONFLICT (blake3)"
        " DO UPDATE SET content = excluded.content WHERE content <> excluded.content",
        contents.items(),
    )


def _holds(path: Path, blake3: str) -> bool:
    try:
        return blake3_bytes(path.read_bytes()) == blake3
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes) -> None:
    fresh = not path.parent.is_dir()
    # One by one: mkdir(parents=True) would give a parent the default mode.
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, content, synced=True)
    # Content before name, name before parent: after a power cut every name has its content.
    _sync_directory(path.parent)
    if fresh:
        _sync_directory(path.parent.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_keep(path: Path, error: OSError) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"Evidence cannot be kept at {path}: {error.strerror}.",
        remedy="Free space there, or give the user who runs Actum write access.",
    )
