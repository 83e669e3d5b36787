"""A home in which executions lay in a table until they were filed, under today's code."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from actum.contract.outcome import Outcome
from actum.store.database import Database
from actum.store.migrations import MIGRATIONS
from common.old_homes import old_home

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))
from evidence.factories import House, bad


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two executions and a refusal filed; of three that lay there one had not ended."""
    return old_home(7, tmp_path)


def test_the_old_file_really_is_of_schema_7(home: Path) -> None:
    with sqlite3.connect(home / "actum.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        lay = connection.execute("SELECT state, count(*) FROM unfiled GROUP BY state").fetchall()
    connection.close()
    assert lay == [("FINAL", 2), ("PENDING", 1)]


def test_what_lay_there_is_filed_and_everything_verifies(house: House) -> None:
    assert house.database.row("PRAGMA user_version") == (len(MIGRATIONS),)
    assert house.database.rows("SELECT name FROM sqlite_master WHERE name = 'unfiled'") == []
    assert len(house.receipts.latest(99)) == 4
    assert bad(house.verifier.verify_all()) == []


def test_one_that_was_interrupted_under_the_old_version_is_closed_by_the_new_one(
    house: House,
) -> None:
    (left,) = house.executions.open_executions()
    assert not left.alive
    receipt = house.ledger.close_interrupted(left.execution_id)
    known = house.executions.get(left.execution_id)
    assert known is not None
    assert (known.outcome, known.receipt_id) == (Outcome.EXCEPTION, receipt.receipt_id)
    house.execute()
    assert bad(house.verifier.verify_all()) == []


def test_the_journal_is_made_private_beside_it(home: Path) -> None:
    Database.open(home).close()
    journal = home / "actum.journal"
    assert journal.stat().st_mode & 0o777 == 0o600
    assert journal.read_bytes().startswith(b"ACTUMJNL")
