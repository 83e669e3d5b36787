"""A read-only snapshot of the database, for verification.

A separate read-only connection, in one read transaction: commits of other processes are invisible,
so that rows of all tables belong together. No writer waits for it. Temporary tables in memory may
shadow those of the file (`shadow`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from actum.errors import EvidenceUnavailable
from actum.store.database import BUSY_TIMEOUT_S, FILE_NAME, expected_schema, fault

#: Prefix of the tables in memory, when a view has their name.
_MEMORY = "unwritten_"


class Reader(Protocol):
    """Reads single rows: a `Snapshot`, or the `Database` itself."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None: ...


class Snapshot:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._shadowed: dict[str, str] = {}  #: tables with rows in memory: their keys
        self._whole: frozenset[str] = frozenset()  #: tables whose rows are all in memory

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Read everything that `sql` selects."""
        with self._mapped():
            return self._connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Read the first row that `sql` selects, if there is one."""
        with self._mapped():
            found: tuple[Any, ...] | None = self._connection.execute(sql, parameters).fetchone()
            return found

    def each(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows one by one: a table may be larger than memory."""
        with self._mapped():
            yield from self._connection.execute(sql, parameters)

    def scan(self, table: str, columns: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """These columns of every row of a table, in the order in which rows were written."""
        names = ", ".join(columns or self.columns(table))
        select = f"SELECT {names} FROM"
        if table in self._whole:
            yield from self.each(f"{select} temp.{table} ORDER BY rowid")
        elif table in self._shadowed:
            key, memory = self._shadowed[table], f"temp.{_MEMORY}{table}"
            kept = _not_in(memory, key)
            yield from self.each(f"{select} main.{table} WHERE {kept} ORDER BY rowid")
            yield from self.each(f"{select} {memory} ORDER BY rowid")
        else:
            yield from self.each(f"{select} main.{table} ORDER BY rowid")

    def columns(self, table: str) -> tuple[str, ...]:
        """Names of the columns of a table, in order."""
        return tuple(row[1] for row in self.rows(f"PRAGMA main.table_info({table})"))

    def cursor(self) -> sqlite3.Cursor:
        """For code that reads with a transaction's cursor."""
        return self._connection.cursor()

    @contextmanager
    def shadow(self, tables: Iterable[str], whole: Iterable[str]) -> Iterator[sqlite3.Cursor]:
        """Fill tables of the same names and columns in memory; raising undoes it.

        Afterwards the name of each of `tables` means the rows of the file that no row in memory
        replaces, and those in memory; that of each of `whole`, the rows in memory.
        """
        tables, whole = tuple(tables), tuple(whole)
        with self._mapped():
            cursor = self._connection.cursor()
            try:
                for name in (*tables, *whole):
                    cursor.execute(_in_memory(name))
                yield cursor
            except BaseException:
                for name in (*tables, *whole):
                    cursor.execute(f"DROP TABLE IF EXISTS temp.{name}")
                raise
            self._shadowed = {name: _stand_before(cursor, name) for name in tables}
            self._whole = frozenset(whole)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise fault(error, self.path) from error


def _in_memory(table: str) -> str:
    return expected_schema()[f"table {table}"].replace("CREATE TABLE", "CREATE TEMP TABLE", 1)


def _stand_before(cursor: sqlite3.Cursor, table: str) -> str:
    """Make the table's name refer to both; returns its key."""
    key = _key(cursor, table)
    cursor.execute(f"ALTER TABLE temp.{table} RENAME TO {_MEMORY}{table}")
    cursor.execute(
        f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table}"  # noqa: S608 -- ours
        f" WHERE {_not_in(f'temp.{_MEMORY}{table}', key)}"
        f" UNION ALL SELECT * FROM temp.{_MEMORY}{table}"
    )
    return key


def _not_in(memory: str, key: str) -> str:
    # A row without a key is in no table of ours, and is shown.
    return f"({key} IS NULL OR {key} NOT IN (SELECT {key} FROM {memory}))"  # noqa: S608 -- ours


def _key(cursor: sqlite3.Cursor, table: str) -> str:
    columns = cursor.execute(f"PRAGMA temp.table_info({table})").fetchall()
    return str(next(name for _, name, _, _, _, place in columns if place == 1))


@contextmanager
def snapshot(home: Path) -> Iterator[Snapshot]:
    """Open `home`/actum.db as it is now."""
    path = home / FILE_NAME
    if not stat.S_ISREG(_mode(path)):
        raise EvidenceUnavailable(
            f"The store {path} is missing, or it is not a regular file.",
            remedy="Restore the home from a backup.",
        )
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise fault(error, path) from error
    try:
        # Invalid UTF-8 is decoded with escapes: a difference, not an error.
        connection.text_factory = _text
        found = Snapshot(path, connection)
        found.rows("PRAGMA temp_store = MEMORY")
        found.rows("BEGIN")
        found.rows("SELECT 1 FROM sqlite_master LIMIT 1")
        yield found
    finally:
        connection.close()


def _mode(path: Path) -> int:
    # Checked by stat, never opened: closing it would release SQLite's locks (POSIX).
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
