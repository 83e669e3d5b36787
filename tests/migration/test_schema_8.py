"""A home whose audit records bound no row of approvals, work runs and MCP servers, under today's
code: such rows are counted and not called changed, and from the first opening on they are bound."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from evidence.factories import House, bad, tamper

from actum.doors.cli.main import _run
from actum.store.migrations import MIGRATIONS
from common.old_homes import old_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A used and an undecided approval, a server, a work item, an open action."""
    (tmp_path / "actum.toml").write_text("[runners]\nlocal = true\n")
    made = old_home(8, tmp_path)
    for kept in made.glob("work/*/kept/*/old/*"):
        kept.chmod(0o644)  # as recorded; a checkout has modes of its own
    return made


def verify_all(home: Path) -> tuple[int, list[dict[str, Any]]]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = _run(["verify", "--all", "--json", "--home", str(home)])
    return code, json.loads(said.getvalue())["findings"]


def not_bound(findings: list[dict[str, Any]]) -> dict[str, str]:
    return {each["subject"]: each["detail"] for each in findings if each["check"] == "not bound"}


def test_the_old_file_really_is_of_schema_8(home: Path) -> None:
    connection = sqlite3.connect(home / "actum.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (8,)
    counted = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("approvals", "work_runs", "server_tools", "open_actions")
    }
    connection.close()
    assert counted == {"approvals": 2, "work_runs": 1, "server_tools": 1, "open_actions": 1}


def test_what_was_not_bound_is_counted_and_not_called_changed(home: Path) -> None:
    code, findings = verify_all(home)
    assert [each for each in findings if not each["passed"]] == []
    assert code == 0
    older = "1 (written before schema 10)"
    later = "(written before schema 10), but for their ROWS record since"
    assert not_bound(findings) == {
        "files for an undo": older,
        "replay scripts": older,
        "table approvals": f"2 {later}",
        "table open_actions": older,
        "table server_tools": f"1 {later}",
        "table work_runs": f"1 {later}",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE approvals SET rationale = 'other' WHERE rationale IS NOT NULL",
        "UPDATE approvals SET decided_by = 'user:other' WHERE decided_by IS NOT NULL",
        "UPDATE work_runs SET status = 'failure'",
        "UPDATE work_runs SET workspace = '/elsewhere'",
        "UPDATE work_runs SET item = replace(item, 'one', 'two')",
        "DELETE FROM work_runs",
        "DELETE FROM open_actions",
    ],
)
def test_what_was_bound_before_is_compared_even_so(home: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "actum.db")) as connection:
        declared = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in declared:
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(statement).rowcount > 0
        for _, sql in declared:
            connection.execute(sql)
        connection.commit()
    assert verify_all(home)[0] == 1


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("UPDATE approvals SET expires_at = '2099-01-01T00:00:00.000Z'", "approval"),
        ("UPDATE server_tools SET tools = '{}'", "tools of an MCP server"),
        ("UPDATE work_runs SET owner = 'x'", "work run"),
        ("DELETE FROM server_tools", "tools of an MCP server"),
        (
            "INSERT INTO server_tools SELECT pin, 'other', sha256, tools, '' FROM server_tools",
            "tools of an MCP server",
        ),
    ],
)
def test_from_the_first_opening_on_every_row_is_bound(
    house: House, statement: str, subject: str
) -> None:
    assert house.database.row("PRAGMA user_version") == (len(MIGRATIONS),)
    kinds = [json.loads(record)["kind"] for record in house.audit()]
    assert kinds.count("ROWS") == 1
    assert bad(house.verifier.verify_all()) == []
    tamper(house, statement)
    found = bad(house.verifier.verify_all())
    assert [name for name, _ in found if name.startswith(subject)], found


def test_a_home_is_adopted_once(home: Path) -> None:
    for _ in range(3):
        opened = House.open(home)
        opened.execute()
        opened.database.close()
    opened = House.open(home)
    kinds = [json.loads(record)["kind"] for record in opened.audit()]
    assert kinds.count("ROWS") == 1
    assert bad(opened.verifier.verify_all()) == []
    opened.database.close()
