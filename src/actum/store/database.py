"""The one SQLite file, `.actum/actum.db`: transactions, migrations, and what its failures mean.

One `Database` may be used by many threads, and one file by many processes. Every write is a short
transaction that takes the write lock at once, so that a reader never has to become a writer and
fail half way. A commit is on the disk when it returns (WAL with full sync). What lies in the
journal (`store.journal`) is filed before anything is read or written here, so nobody sees less for
it. No statement of any other room lives here, and nothing is retried: a store that fails stops
what depends on it.
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

from actum.errors import EvidenceUnavailable
from actum.store.journal import Journal, held
from actum.store.migrations import MIGRATIONS, Part

FILE_NAME = "actum.db"
BUSY_TIMEOUT_S = 10.0
_FOLD_PAGES = 2_000

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CLOSED_TO_US = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_AUTH,
}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_TAKEN = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


class Filer(Protocol):
    """Whoever can read the journal: that takes the signing key."""

    def file(self, cursor: sqlite3.Cursor) -> bool:
        """File what lies there, in the transaction of `cursor`; whether there was anything."""

    def committed(self) -> None:
        """The transaction is on the disk, and the journal emptied if it was filed."""

    def undone(self) -> None:
        """The transaction is given up."""


class Database:
    """An open store; `Database.open` makes or migrates the file first."""

    def __init__(self, path: Path, connection: sqlite3.Connection, journal: Journal) -> None:
        self.path = path
        self.journal = journal
        self._connection = connection
        self._filer: Filer | None = None
        self._first: list[Callable[[], None]] = []
        self._second: sqlite3.Connection | None = None
        self._as_it_is = False
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

    def files_by(self, filer: Filer) -> None:
        """From here on what lies in the journal is filed before anything is read."""
        self._filer = filer

    def before_closing(self, stop: Callable[[], None]) -> None:
        """Have `stop` called first, without any lock held."""
        self._first.append(stop)

    def begin_turn(self) -> None:
        """Let nobody else write until `end_turn`: no thread, no process; see `Journal.acquire`."""
        self._lock.acquire()
        try:
            self.journal.acquire(BUSY_TIMEOUT_S)
        except BaseException:
            self._lock.release()
            raise

    def end_turn(self) -> None:
        try:
            self.journal.release()
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """One atomic write: committed and synced when the block ends, undone when it raises."""
        with self._mapped():
            self.begin_turn()
            try:
                yield from self._in_turn()
            finally:
                self.end_turn()

    def _in_turn(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            filed = self._filer is not None and self._filer.file(cursor)
            yield cursor
            # Before the commit: whoever is alive when it is done must not believe their memory.
            self.journal.touch()
            cursor.execute("COMMIT")
            if filed:
                self.journal.empty()
        except BaseException:
            # SQLite has rolled back by itself after some errors (disk full, I/O).
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            if self._filer is not None:
                self._filer.undone()
            raise
        finally:
            cursor.close()
        if self._filer is not None:
            self._filer.committed()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read everything that `sql` selects."""
        with self._lock, self._mapped(), self._filed() as connection:
            return connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Read the first row that `sql` selects, if there is one."""
        with self._lock, self._mapped(), self._filed() as connection:
            found: tuple[Any, ...] | None = connection.execute(sql, parameters).fetchone()
            return found

    def close(self) -> None:
        if os.getpid() != self._process:
            # A fork's: threads that it does not have may hold what it inherited, our lock and
            # SQLite's own, for good. It ends with the process; nothing there is the fork's to file.
            return
        for stop in self._first:
            stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # What cannot be filed any more is safe where it lies.
            with suppress(EvidenceUnavailable), self._mapped():
                self._file()
            self.journal.close()
            with self._mapped():
                if self._second is not None:
                    self._second.close()
                self._connection.close()

    @contextmanager
    def beside(self) -> Iterator[sqlite3.Cursor]:
        """A transaction for one thread, by a connection of its own: nobody waits for it who only
        adds to the journal. It adds nothing to the log that does not lie there."""
        with self._mapped():
            second = self.stand_by()
            with closing(second.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor
                    cursor.execute("COMMIT")
                except BaseException:
                    if second.in_transaction:
                        cursor.execute("ROLLBACK")
                    raise

    def stand_by(self) -> sqlite3.Connection:
        """The connection for `beside`, for which there is a good time."""
        if self._second is None:
            with self._mapped():
                second = _connected(self.path)
                _set_up(second)
                self._second = second
        return self._second

    @contextmanager
    def as_it_is(self) -> Iterator[None]:
        """Read what is filed and nothing else: all there is to see if the journal was changed."""
        with self._lock:
            before, self._as_it_is = self._as_it_is, True
            try:
                yield
            finally:
                self._as_it_is = before

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        """To read more inside a turn, what lies in the journal being known."""
        with self._mapped(), closing(self._connection.cursor()) as cursor:
            yield cursor

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Read one row inside a turn, what lies in the journal being known."""
        try:
            found: tuple[Any, ...] | None = self._connection.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise fault(error, self.path) from error
        return found

    def file(self) -> None:
        """Empty the journal into the tables."""
        with self._lock, self._mapped():
            self._file()

    def _file(self) -> None:
        if self._as_it_is or self._connection.in_transaction or not self.journal.lies():
            return
        if self._filer is None:
            raise EvidenceUnavailable(
                f"{self.journal.path} holds what only the log of this home can file.",
                remedy="Open the home with its signing key.",
            )
        with self.transaction():
            pass

    @contextmanager
    def _filed(self) -> Iterator[sqlite3.Connection]:
        """To read from when everything is filed."""
        connection = self._connection
        try:
            self._file()
        except EvidenceUnavailable as error:
            if not _without_room(error.__cause__):
                raise
            # To read, nothing has to be written: a transaction that is given up needs no room.
            self.begin_turn()
            try:
                yield from self._given_up(connection)
            finally:
                self.end_turn()
        else:
            yield connection

    def _given_up(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        assert self._filer is not None  # noqa: S101 -- or there would be nothing to file
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("PRAGMA cache_spill = OFF")
            self._filer.file(connection.cursor())
            yield connection
        finally:
            self._filer.undone()
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
            raise EvidenceUnavailable(
                f"{self.path} has schema {version}; this Actum knows schemas up to"
                f" {len(MIGRATIONS)}.",
                remedy="Upgrade Actum, or name another home with `--home DIR`.",
            )

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self) -> None:
        for number, step in enumerate(MIGRATIONS, start=1):
            with self.transaction() as cursor:
                # Looked at again under the write lock: another process may have been faster.
                if self._version() >= number:
                    continue
                _apply(cursor, step)
                cursor.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise fault(error, self.path) from error


def _make(path: Path) -> None:
    """Put an empty file there, if there is none."""
    # Made by us and not by SQLite, so that it is private from its first byte on; the -wal and -shm
    # files take its mode over. And never opened by us: closing it would give up all locks that this
    # process has on it (POSIX), those of another `Database` too. Whoever closed it next elsewhere
    # would be the last, and throw the -wal file away that the other one goes on writing into.
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
    # What was written before a start is overwritten when it is no longer needed.
    connection.execute("PRAGMA secure_delete = FAST")
    # Folding the log into the file costs syncs of its own: once in hundreds of commits.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_FOLD_PAGES}")


@cache
def expected_schema(version: int = len(MIGRATIONS)) -> Mapping[str, str]:
    """Every table, index and trigger that a file of a version has, and how it is declared."""
    connection = sqlite3.connect(":memory:")
    try:
        for step in MIGRATIONS[:version]:
            _apply(connection.cursor(), step)
        return schema_of(connection.execute(SCHEMA).fetchall())
    finally:
        connection.close()


SCHEMA = "SELECT type, name, coalesce(sql, '') FROM main.sqlite_master"


def schema_of(rows: list[tuple[str, str, str]]) -> dict[str, str]:
    """Declarations by kind and name, without those that SQLite makes for itself."""
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
    # Not executescript: that commits whatever is open before it begins.
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _code(error: BaseException | None) -> int:
    # Extended codes keep the plain one in the low byte.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _without_room(error: BaseException | None) -> bool:
    if isinstance(error, OSError):  # of the journal
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return _code(error) in _NO_ROOM


def fault(error: sqlite3.Error, path: Path) -> EvidenceUnavailable:
    code = _code(error)
    if code in _DAMAGED:
        said = f"The store {path} is damaged: {error}."
        remedy = "Move it aside and restore a backup; a new one is made if none is there."
    elif code in _CLOSED_TO_US:
        said = f"The store {path} cannot be written: {error}."
        remedy = "Check its owner, its mode and that its file system is not mounted read-only."
    elif code in _NO_ROOM:
        said = f"The store {path} cannot take more records: {error}."
        remedy = "Free space on that file system, or look for disk errors in the kernel log."
    elif code in _TAKEN:
        return held(path, BUSY_TIMEOUT_S)
    else:
        said = f"The store {path} refused a record: {error}."
        remedy = "Run `actum verify --all` to see whether the store is sound."
    return EvidenceUnavailable(said, remedy=remedy)
