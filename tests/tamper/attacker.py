"""What an attacker can do with the home, except its private key, and a SQLite shell.

The schema is no obstacle: triggers are dropped, and constraints are taken out of the declarations
while a row is changed. Afterwards every declaration is as it was.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from actum.doors.cli.main import _run
from actum.store.database import FILE_NAME

_DECLARED = "SELECT rowid, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"


class Verdict(NamedTuple):
    code: int
    broken: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return "; ".join(f"{each['subject']}: {each['detail']}" for each in self.broken)


def verify(home: Path) -> Verdict:
    """`actum verify --all`, in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = _run(["verify", "--all", "--json", "--home", str(home)])
    document = json.loads(said.getvalue())
    assert "findings" in document, document
    return Verdict(code, [each for each in document["findings"] if not each["passed"]])


class Store:
    """The database file, which can be put back."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME
        self._kept = home.parent.parent / "kept.db"
        assert not Path(f"{self.path}-wal").exists()  # all of it is in the one file
        shutil.copyfile(self.path, self._kept)

    def put_back(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self._kept, self.path)

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self._kept}?mode=ro&immutable=1", uri=True)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    @property
    def tables(self) -> list[str]:
        rows = self.read("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [name for (name,) in rows]

    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        """Name, type, and whether it is (part of) the key."""
        rows = self.read(f"PRAGMA table_info({table})")
        return [(row[1], row[2], bool(row[5])) for row in rows]

    def change(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        """Carry out statements that no constraint stops; raises what SQLite itself refuses."""
        triggers, declared = self._loosened()
        connection = self._opened()
        try:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("BEGIN")
            for sql, values in statements:
                assert connection.execute(sql, values).rowcount > 0, sql
            connection.execute("COMMIT")
        finally:
            connection.close()
            self._restored(triggers, declared)

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def _loosened(self) -> tuple[list[str], list[tuple[int, str]]]:
        connection = self._opened()
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        declared = connection.execute(_DECLARED).fetchall()
        loose = [
            (rowid, re.sub(r"(?<=TEXT|BLOB) NOT NULL|(?<=INTEGER) NOT NULL| STRICT$", "", sql))
            for rowid, sql in declared
        ]
        _declare(connection, loose)
        return [sql for _, sql in triggers], declared

    def _restored(self, triggers: list[str], declared: list[tuple[int, str]]) -> None:
        connection = self._opened()
        _declare(connection, declared)
        connection = self._opened()
        for sql in triggers:
            connection.execute(sql)
        connection.close()


def _declare(connection: sqlite3.Connection, declared: list[tuple[int, str]]) -> None:
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute("PRAGMA writable_schema = ON")
    for rowid, sql in declared:
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE rowid = ?", (sql, rowid))
    connection.execute(f"PRAGMA schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = OFF")
    connection.close()


@contextlib.contextmanager
def aside(path: Path, place: Path) -> Iterator[Path]:
    """A file that is moved to `place`, and back when the block ends; yields where it is."""
    kept = place / "aside"
    os.rename(path, kept)
    try:
        yield kept
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        os.rename(kept, path)
