"""Every column of every table: changed, emptied, of another type; rows deleted, swapped and added.

The cases are made from the live schema, for a home that holds rows of every table. A table that is
added later is tried without a word here, and fails the first test if the home holds no row of it.
Control: the untouched home verifies before and after. `make test` changes each column in two rows,
and in two of the other ways by turns; `make soak` in all rows and ways.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actum.store.database import expected_schema
from actum.store.migrations import MIGRATIONS

from .attacker import Store, Verdict, verify
from .home import make_home

pytestmark = pytest.mark.sandbox

SOAK = os.environ.get("ACTUM_SOAK") == "1"
TABLES = sorted(
    name.removeprefix("table ") for name in expected_schema() if name.startswith("table ")
)
#: Columns whose values tell kinds of rows apart, and how many rows of a table are tried.
_KINDS = ("state", "status", "kind", "outcome", "approved", "event_type")
_ROWS = 3
#: Tables whose order of rows says something. Elsewhere rows with exchanged places are the same.
_ORDERED = ("approvals", "evidence_records", "receipts")
#: How findings call the rows of a table, where they do not name the table.
_NOUNS = {"audit": "audit record", "checkpoints": "checkpoint", "trace_events": "trace of"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("rows") / "project")


@pytest.fixture(scope="module")
def store(home: Path) -> Iterator[Store]:
    store = Store(home)
    yield store
    store.put_back()
    assert verify(home) == (0, [])


@pytest.fixture(autouse=True)
def untouched(home: Path, store: Store) -> None:
    """The control of every test: the home as it was made verifies."""
    store.put_back()
    assert verify(home) == (0, [])


class Table:
    """Tries changes of one table, and counts those that were found."""

    def __init__(self, home: Path, store: Store, name: str) -> None:
        self.home, self.store, self.name = home, store, name
        self.columns = store.columns(name)
        names = ", ".join(column for column, _, _ in self.columns)
        self.rows: dict[int, dict[str, Any]] = {}
        for rowid, *values in store.read(f"SELECT rowid, {names} FROM {name} ORDER BY rowid"):
            self.rows[rowid] = dict(zip(names.split(", "), values, strict=True))
        self.tried = 0
        self.missed: list[str] = []

    @property
    def chosen(self) -> list[int]:
        """The first row, the last, and some of other kinds."""
        found = {min(self.rows), max(self.rows)}
        seen = {self._kind(rowid) for rowid in found}
        for rowid in self.rows:
            if self._kind(rowid) not in seen and len(found) < _ROWS:
                found.add(rowid)
                seen.add(self._kind(rowid))
        return sorted(found)

    def _kind(self, rowid: int) -> tuple[Any, ...]:
        return tuple(self.rows[rowid].get(column) for column in _KINDS)

    def change(self, what: str, *statements: tuple[str, tuple[Any, ...]]) -> None:
        try:
            self.store.change(*statements)
        except sqlite3.Error:
            return  # SQLite itself does not take it: a number that is a rowid, a double key
        else:
            self.tried += 1
            self._judge(what, verify(self.home))
        finally:
            self.store.put_back()

    def _judge(self, what: str, verdict: Verdict) -> None:
        named = self.name in verdict.text or _NOUNS.get(self.name, self.name) in verdict.text
        if verdict.code != 1 or not verdict.broken or not named:
            self.missed.append(f"{self.name}: {what}: exit {verdict.code}, {verdict.text}")

    def set(self, what: str, rowid: int, column: str, value: Any, cast: str = "?") -> None:
        if cast == "?" and self.rows[rowid][column] == value:
            return
        update = f"UPDATE {self.name} SET {column} = {cast} WHERE rowid = ?"
        self.change(f"{what} {column} of row {rowid}", (update, (value, rowid)))


@pytest.fixture
def table(home: Path, store: Store, request: pytest.FixtureRequest) -> Table:
    return Table(home, store, request.param)


def each_table(test: Any) -> Any:
    return pytest.mark.parametrize("table", TABLES, indirect=True)(test)


def test_the_home_holds_rows_of_every_table(home: Path, store: Store) -> None:
    assert store.tables == TABLES
    few = {table: len(Table(home, store, table).rows) for table in TABLES}
    assert {table: number for table, number in few.items() if number < 2} == {}


def edited(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, int):
        return value + 1_000
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "edited"


def odd(value: Any) -> tuple[Any, str]:
    """A value of another type than the column's."""
    return (b"\xff\xfe", "?") if isinstance(value, str) else (b"\xff", "CAST(? AS TEXT)")


@pytest.mark.soak
@each_table
def test_every_column_is_watched(table: Table, record_property: Any) -> None:
    first, *others = table.chosen
    for number, (column, declared, _) in enumerate(table.columns):
        value = table.rows[first][column]
        table.set("changed", first, column, edited(value))
        for rowid in others if SOAK else others[-1:]:
            table.set("changed", rowid, column, edited(table.rows[rowid][column]))
        ways: list[tuple[Any, ...]] = [
            ("nothing in", None),
            ("emptied", {"TEXT": "", "INTEGER": 0}.get(declared, b"")),
            ("odd", *odd(value)),
            ("taken from another row:", table.rows[others[0]][column]),
        ]
        if declared == "TEXT" and value is not None:
            ways.append(("spaced", f"{value} "))
        for turn in range(len(ways) if SOAK else 2):
            what, *content = ways[(2 * number + turn) % len(ways)]
            table.set(what, first, column, *content)
    record_property(
        "figure", f"{table.name}: {table.tried} changed values, {len(table.missed)} missed"
    )
    assert table.tried >= 3 * len(table.columns) - 3
    assert table.missed == []


@each_table
def test_every_deleted_row_is_missed(table: Table) -> None:
    for rowid in table.chosen:
        table.change(f"deleted {rowid}", (f"DELETE FROM {table.name} WHERE rowid = ?", (rowid,)))
    assert table.tried == len(table.chosen)
    assert table.missed == []


def test_a_table_without_rows_is_missed(home: Path, store: Store) -> None:
    for name in TABLES:
        table = Table(home, store, name)
        table.change("emptied", (f"DELETE FROM {name}", ()))
        assert (table.tried, table.missed) == (1, [])


@each_table
def test_rows_that_exchange_contents_are_found(table: Table) -> None:
    contents = [column for column, _, is_key in table.columns if not is_key]
    assignments = ", ".join(f"{column} = ?" for column in contents)
    update = f"UPDATE {table.name} SET {assignments} WHERE rowid = ?"
    pairs = list(pairwise(table.chosen))
    for one, other in pairs:
        values = [[table.rows[rowid][column] for column in contents] for rowid in (one, other)]
        if values[0] == values[1]:
            continue  # nothing would change
        # First aside: a column may be unique.
        aside = [None if isinstance(value, str) else value for value in values[0]]
        table.change(
            f"exchanged {one} and {other}",
            (update, (*aside, one)),
            (update, (*values[0], other)),
            (update, (*values[1], one)),
        )
    assert table.missed == []


@pytest.mark.parametrize("table", _ORDERED, indirect=True)
def test_rows_that_exchange_places_are_found_where_order_counts(table: Table) -> None:
    rows = list(table.rows)
    for one, other in list(pairwise(rows))[:3]:
        move = f"UPDATE {table.name} SET rowid = ? WHERE rowid = ?"
        table.change(
            f"exchanged the places of {one} and {other}",
            (move, (0, one)),
            (move, (one, other)),
            (move, (other, 0)),
        )
    assert table.tried == 3
    assert table.missed == []


@each_table
def test_a_row_that_was_never_recorded_is_found(table: Table) -> None:
    unique = {column for column, _, is_key in table.columns if is_key} | (
        {"run_id"} if table.name == "work_receipts" else set()
    )
    names = [column for column, _, _ in table.columns]
    insert = f"INSERT INTO {table.name} VALUES ({', '.join('?' for _ in names)})"
    for rowid in table.chosen:
        row = dict(table.rows[rowid])
        for column in unique:
            number = max(
                (each[column] for each in table.rows.values() if isinstance(each[column], int)),
                default=0,
            )
            row[column] = number + 1 if isinstance(row[column], int) else str(uuid.uuid4())
        table.change(f"a copy of {rowid} added", (insert, tuple(row.values())))
    assert table.tried == len(table.chosen)
    assert table.missed == []


@pytest.mark.parametrize("version", [0, 1, 6, 7, 8, 9, len(MIGRATIONS) + 1])
def test_another_number_of_the_schema_is_found_and_migrates_nothing(
    home: Path, store: Store, version: int
) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    assert verify(home).code == 1
    connection = sqlite3.connect(store.path)
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    connection.close()


def test_a_table_index_or_trigger_more_or_less_is_found(home: Path, store: Store) -> None:
    for statement in (
        "CREATE TABLE my_sqlite_table (x)",
        "CREATE TRIGGER not_sqlite_own AFTER INSERT ON audit BEGIN SELECT 1; END",
        "CREATE INDEX more ON approvals (state)",
        "DROP INDEX approvals_by_call",
        "DROP TRIGGER approvals_are_decided_once",
        "DROP TABLE server_tools",
        "ALTER TABLE work_runs DROP COLUMN owner",
        "ALTER TABLE approvals ADD COLUMN more TEXT",
    ):
        connection = sqlite3.connect(store.path)
        connection.execute(statement)
        connection.close()
        verdict = verify(home)
        store.put_back()
        assert verdict.code == 1, statement
        assert {"database"} <= {each["subject"] for each in verdict.broken}, statement


def test_pages_that_are_no_pages_are_found(home: Path, store: Store) -> None:
    whole = store.path.read_bytes()
    for content in (b"", b"x" * len(whole), whole[: len(whole) // 2], whole[:100]):
        store.path.write_bytes(content)
        verdict = verify(home)
        assert (verdict.code, bool(verdict.broken)) == (1, True), len(content)
    # One page at a time, in its middle: some hold nothing, and none may stop the verification.
    found = 0
    for page in range(1, len(whole) // 4096, 4):
        at = page * 4096 + 64
        store.path.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
        verdict = verify(home)
        assert verdict.code in (0, 1), page
        found += verdict.code
    assert found > 0
