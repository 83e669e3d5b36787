"""The one SQLite file, `.actum/actum.db`: transactions, migrations, and what its failures mean.

One `Database` serves many threads, and one file many processes. Every write is a short
transaction that takes the write lock at its beginning, so that a reader never has to become a
writer and fail half way. A commit is on the disk when it returns (WAL with full sync). Journal
entries (`store.journal`) are written out before any read or write here, so every reader sees them.
This module holds no statement of another package, and retries nothing: a store that fails stops
everything that depends on it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from actum import __version__
from actum.errors import EvidenceUnavailable, Refused
from actum.store.journal import Journal, held
from actum.store.migrations import MIGRATIONS, Part

FILE_NAME = "actum.db"
BUSY_TIMEOUT_S = 10.0
_FOLD_PAGES = 2_000
#: With less room than this, a failed write is taken for a lack of room.
_ROOM_BYTES = 65_536

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CLOSED_TO_US = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_AUTH,
}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_TAKEN = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


class JournalReader(Protocol):
    """Reads the journal, which needs the signing key. Implemented by `evidence.log.Log`."""

    def write_out(self, cursor: sqlite3.Cursor) -> bool:
        """Write journal entries out in the transaction of `cursor`; whether there were any."""

    def committed(self) -> None:
        """The transaction is on the disk, and the journal is empty if it was written out."""

    def undone(self) -> None:
        """The transaction was rolled back."""


class Tables:
    """Reads tables that no journal entry adds to, so without a write-out: a process that polls them
    costs no sync while another one executes. Implements `snapshot.Reader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._database.tables_only():
            return self._database.rows(sql, parameters)

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        with self._database.tables_only():
            return self._database.row(sql, parameters)


class Database:
    """An open store; `Database.open` makes or migrates the file first."""

    def __init__(self, path: Path, connection: sqlite3.Connection, journal: Journal) -> None:
        self.path = path
        self.journal = journal
        self._connection = connection
        self._reader: JournalReader | None = None
        self._before_closing: list[Callable[[], None]] = []
        self._background: sqlite3.Connection | None = None
        self._tables_only = False
        self._closed = False
        self._process = os.getpid()
        self._lock = threading.RLock()

    @classmethod
    def open(cls, home: str | os.PathLike[str], *, create: bool = True) -> Database:
        """Open `home`/actum.db; `home` is the `.actum` directory."""
        path = Path(home) / FILE_NAME
        try:
            if create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _make(path)
            connection = _connected(path)
        except OSError as error:
            raise EvidenceUnavailable(
                f"The store {path} cannot be opened: {error.strerror}.",
                remedy="Give the user who runs Actum write access to that directory.",
            ) from error
        except sqlite3.Error as error:
            raise fault(error, path) from error
        try:
            journal = Journal.open(path.parent, BUSY_TIMEOUT_S)
        except BaseException:
            connection.close()
            raise
        database = cls(path, connection, journal)
        try:
            database._prepare()
        except BaseException:
            connection.close()
            journal.close()
            raise
        return database

    def reads_journal_with(self, reader: JournalReader) -> None:
        """From here on journal entries are written out before every read."""
        self._reader = reader

    def before_closing(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the beginning of `close`, with no lock held."""
        self._before_closing.append(stop)

    def acquire_write_lock(self) -> None:
        """Exclude other threads and processes from writing; see `Journal.acquire`."""
        self._lock.acquire()
        try:
            before = self.journal.revision
            self.journal.acquire(BUSY_TIMEOUT_S)
            try:
                # Another process has committed since: it may be of a newer version.
                if self.journal.revision is not before:
                    self._require_known_schema(self._connection)
            except BaseException:
                self.journal.release()
                raise
        except BaseException:
            self._lock.release()
            raise

    def release_write_lock(self) -> None:
        try:
            self.journal.release()
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """One atomic write: committed and synced when the block ends, undone when it raises."""
        with self._mapped():
            self.acquire_write_lock()
            try:
                yield from self._locked_transaction()
            finally:
                self.release_write_lock()

    def _locked_transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            written = self._reader is not None and self._reader.write_out(cursor)
            yield cursor
            # Before the commit: it invalidates what other processes have cached of the log.
            self.journal.touch()
            cursor.execute("COMMIT")
            if written:
                self.journal.empty()
        except BaseException:
            # SQLite has rolled back by itself after some errors (disk full, I/O).
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            if self._reader is not None:
                self._reader.undone()
            raise
        finally:
            cursor.close()
        if self._reader is not None:
            self._reader.committed()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read everything that `sql` selects."""
        with self._lock, self._mapped(), self._written_out() as connection:
            return connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Read the first row that `sql` selects, if there is one."""
        with self._lock, self._mapped(), self._written_out() as connection:
            found: tuple[Any, ...] | None = connection.execute(sql, parameters).fetchone()
            return found

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if os.getpid() != self._process:
            # In a fork: threads that exist only in the parent may hold the inherited locks, ours
            # and SQLite's, for ever. The journal is the parent's to write out.
            return
        for stop in self._before_closing:
            stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # Entries that cannot be written out now stay durable in the journal.
            with suppress(EvidenceUnavailable), self._mapped():
                self._write_out()
            self.journal.close()
            with self._mapped():
                if self._background is not None:
                    self._background.close()
                self._connection.close()

    @contextmanager
    def background_transaction(self) -> Iterator[sqlite3.Cursor]:
        """A transaction of one thread, on a connection of its own: appending to the journal does
        not wait for it. It only writes out entries that are in the journal."""
        with self._mapped():
            connection = self.open_background_connection()
            with closing(connection.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    self._require_known_schema(connection)
                    yield cursor
                    cursor.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        cursor.execute("ROLLBACK")
                    raise

    def open_background_connection(self) -> sqlite3.Connection:
        """The connection of `background_transaction`; call it early, when nothing waits."""
        if self._background is None:
            with self._mapped():
                connection = _connected(self.path)
                _set_up(connection)
                self._background = connection
        return self._background

    @property
    def tables(self) -> Tables:
        return Tables(self)

    @contextmanager
    def tables_only(self) -> Iterator[None]:
        """Read the tables without a write-out: the only way if the journal was changed."""
        with self._lock:
            before, self._tables_only = self._tables_only, True
            try:
                yield
            finally:
                self._tables_only = before

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        """Read with the write lock held, without a write-out: the caller knows the journal."""
        with self._mapped(), closing(self._connection.cursor()) as cursor:
            yield cursor

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Read one row with the write lock held, without a write-out."""
        try:
            found: tuple[Any, ...] | None = self._connection.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise fault(error, self.path) from error
        return found

    def write_out(self) -> None:
        """Write all journal entries out and empty the journal."""
        with self._lock, self._mapped():
            self._write_out()

    def _write_out(self) -> None:
        if self._tables_only or self._connection.in_transaction or not self.journal.has_frames():
            return
        if self._reader is None:
            raise EvidenceUnavailable(
                f"{self.journal.path} holds entries that only the log of this home can write out.",
                remedy="Open the home with its signing key.",
            )
        with self.transaction():
            pass

    @contextmanager
    def _written_out(self) -> Iterator[sqlite3.Connection]:
        """A connection to read from, with every journal entry written out."""
        connection = self._connection
        try:
            self._write_out()
        except EvidenceUnavailable as error:
            if not _without_room(error.__cause__):
                raise
            # The disk is full. Write out in a transaction that is rolled back after the read.
            self.acquire_write_lock()
            try:
                yield from self._rolled_back(connection)
            finally:
                self.release_write_lock()
        else:
            yield connection

    def _rolled_back(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        assert self._reader is not None  # noqa: S101 -- else there would be no entries
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("PRAGMA cache_spill = OFF")
            self._reader.write_out(connection.cursor())
            yield connection
        finally:
            self._reader.undone()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("PRAGMA cache_spill = ON")

    def _prepare(self) -> None:
        with self._mapped():
            mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise EvidenceUnavailable(
                    f"The file system of {self.path} cannot keep a write-ahead log.",
                    remedy="Put the home on a local disk (`--home DIR`).",
                )
            _set_up(self._connection)
            version = self._version()
        if version < len(MIGRATIONS):
            self._migrate()
        elif version > len(MIGRATIONS):
            raise Refused(
                "HOME_NEWER",
                f"A newer Actum has written {self.path}: it has schema {version}, and this version"
                f" ({__version__}) knows schemas up to {len(MIGRATIONS)}. Nothing was changed.",
                remedy="Upgrade Actum: a home is never converted back. Or use another home with"
                " `--home DIR`.",
            )

    def _require_known_schema(self, connection: sqlite3.Connection) -> None:
        """A process of a newer version may convert the file while this one has it open."""
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error as error:
            raise fault(error, self.path) from error
        if version > len(MIGRATIONS):
            raise EvidenceUnavailable(
                f"A newer Actum has converted {self.path} to schema {version} while this process"
                f" ({__version__}) had it open. Nothing more is recorded by it.",
                remedy="Start this process again with the newer version.",
            )

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self) -> None:
        """All missing steps in one transaction: a killed process leaves the schema of before."""
        with self.transaction() as cursor:
            # Read under the write lock: another process, perhaps newer, may have been here.
            missing = MIGRATIONS[self._version() :]
            for step in missing:
                _apply(cursor, step)
            if missing:
                cursor.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise fault(error, self.path) from error


def _make(path: Path) -> None:
    """Create an empty file, if there is none."""
    # Created here and not by SQLite, so that it is private from its first byte on; the -wal and
    # -shm files inherit its mode. Never opened here: closing it would release all locks of this
    # process on it (POSIX), including those of another `Database`. The next process to close the
    # file would take itself for the last one and delete the -wal file that is still in use.
    try:
        os.mknod(path, stat.S_IFREG | 0o600)
    except FileExistsError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Overwrite the opening of an execution once its row no longer needs it.
    connection.execute("PRAGMA secure_delete = FAST")
    # A WAL checkpoint costs syncs of its own: once in hundreds of commits.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_FOLD_PAGES}")


@cache
def expected_schema(version: int = len(MIGRATIONS)) -> Mapping[str, str]:
    """Every table, index and trigger of a schema version, and how it is declared."""
    connection = sqlite3.connect(":memory:")
    try:
        for step in MIGRATIONS[:version]:
            _apply(connection.cursor(), step)
        return schema_of(connection.execute(SCHEMA).fetchall())
    finally:
        connection.close()


SCHEMA = "SELECT type, name, coalesce(sql, '') FROM main.sqlite_master"


def schema_of(rows: list[tuple[str, str, str]]) -> dict[str, str]:
    """Declarations by kind and name, without SQLite's own."""
    return {
        f"{kind} {name}": sql for kind, name, sql in rows if not str(name).startswith("sqlite_")
    }


def _apply(cursor: sqlite3.Cursor, step: tuple[Part, ...]) -> None:
    for part in step:
        if callable(part):
            part(cursor)
            continue
        for statement in _statements(part):
            cursor.execute(statement)


def _statements(script: str) -> Iterator[str]:
    # Not executescript: it commits the open transaction first.
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _code(error: BaseException | None) -> int:
    # The low byte of an extended code is the primary code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _without_room(error: BaseException | None) -> bool:
    if isinstance(error, OSError):  # of the journal
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return _code(error) in _NO_ROOM


def _is_full(path: Path) -> bool:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _ROOM_BYTES


def fault(error: sqlite3.Error, path: Path) -> EvidenceUnavailable:
    code = _code(error)
    if code in _DAMAGED:
        text = f"The store {path} is damaged: {error}."
        remedy = "Move it aside and restore a backup; a new one is made if none is there."
    elif code in _CLOSED_TO_US:
        text = f"The store {path} cannot be written: {error}."
        remedy = "Check its owner, its mode and that its file system is not mounted read-only."
    elif code in _NO_ROOM:
        # On a full disk SQLite says "disk I/O error" where it needs room for its shared memory.
        why = "its file system is full" if _is_full(path) else error
        text = f"The store {path} cannot take more records: {why}."
        remedy = "Free space on that file system, or look for disk errors in the kernel log."
    elif code in _TAKEN:
        return held(path, BUSY_TIMEOUT_S)
    else:
        text = f"The store {path} refused a record: {error}."
        remedy = "Run `actum verify --all` to see whether the store is sound."
    return EvidenceUnavailable(text, remedy=remedy)
