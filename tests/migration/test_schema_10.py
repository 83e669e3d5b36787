"""A home from before standing approvals, under today's code."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from pathlib import Path

import pytest

from actum.doors.cli.main import _run
from actum.store.database import Database
from actum.store.migrations import MIGRATIONS
from common.old_homes import old_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An execution, a used approval and an undecided one."""
    (tmp_path / "actum.toml").write_text("[runners]\nlocal = true\n")
    return old_home(10, tmp_path)


def broken(home: Path) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = _run(["verify", "--all", "--json", "--home", str(home)])
    findings = json.loads(said.getvalue())["findings"]
    found = [each["subject"] for each in findings if not each["passed"]]
    assert code == (1 if found else 0)
    return found


def test_the_old_file_really_is_of_schema_10(home: Path) -> None:
    connection = sqlite3.connect(home / "actum.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (10,)
    assert connection.execute("SELECT count(*) FROM approvals").fetchone() == (2,)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    assert ("standing_approvals",) not in tables


def test_it_verifies_and_gets_the_table_of_standing_approvals(home: Path) -> None:
    assert broken(home) == []
    Database.open(home).close()
    connection = sqlite3.connect(home / "actum.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("SELECT count(*) FROM standing_approvals").fetchone() == (0,)
    connection.close()
    assert broken(home) == []


def test_a_standing_approval_that_no_record_binds_is_found(home: Path) -> None:
    Database.open(home).close()
    connection = sqlite3.connect(home / "actum.db")
    names = [row[1] for row in connection.execute("PRAGMA table_info(standing_approvals)")]
    planted = dict.fromkeys(names) | {
        "approval_id": "planted",
        "tool_id": "TL-010",
        "pin": "0" * 64,
        "binding": "{}",
        "hosts": "[]",
        "paths": '["/"]',
        "used": 0,
        "until": "2099-01-01T00:00:00.000Z",
        "granted_at": "2026-11-15T12:00:00.000Z",
        "granted_by": "boss",
        "granted_uid": 0,
        "granted_user": "root",
        "granted_role": "any",
        "granted_why": "so",
        "last_seq": 1,
    }
    marks = ", ".join("?" * len(planted))
    connection.execute(
        f"INSERT INTO standing_approvals VALUES ({marks})", tuple(planted[name] for name in names)
    )
    connection.commit()
    connection.close()
    assert broken(home) == ["standing approval planted"]
