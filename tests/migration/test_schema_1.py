"""A home made by schema 1, before there were checkpoints, under today's code."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from actum.contract.outcome import Outcome
from actum.errors import EvidenceUnavailable
from actum.store import note
from actum.store.database import Database
from actum.store.merkle import Edge, leaf_hash
from actum.store.migrations import MIGRATIONS
from common.old_homes import old_home

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))
from evidence.factories import House, bad, tamper


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As the older version left it: one execution with a file, a refusal and one interrupted."""
    return old_home(1, tmp_path)


def old_records(home: Path) -> list[bytes]:
    with sqlite3.connect(home / "actum.db") as connection:
        rows = connection.execute("SELECT record FROM audit ORDER BY seq").fetchall()
    connection.close()
    return [row[0] for row in rows]


def test_the_old_file_really_is_of_schema_1(home: Path) -> None:
    with sqlite3.connect(home / "actum.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM audit").fetchone()[0] > 10
        columns = [row[1] for row in connection.execute("PRAGMA table_info(audit)")]
    connection.close()
    assert columns == ["seq", "record", "leaf_hash"]


def test_the_tree_is_built_over_the_very_records_that_were_there(home: Path) -> None:
    before = old_records(home)
    house = House.open(home)
    assert house.audit()[: len(before)] == before
    edge = Edge()
    for record in before:
        edge, _ = edge.grown(leaf_hash(record))
    adoption = json.loads(house.audit()[-1])
    assert (adoption["kind"], adoption["records"]) == ("ADOPTED", len(before))
    assert adoption["root"] == edge.root.hex()
    edge, _ = edge.grown(leaf_hash(house.audit()[-1]))
    newest = note.parse(house.ledger.log.checkpoint() or "")
    assert (newest.checkpoint.size, newest.checkpoint.root) == (edge.size, edge.root)
    assert house.database.row("PRAGMA user_version") == (len(MIGRATIONS),)
    house.database.close()


def test_everything_old_still_verifies_and_its_adoption_is_said(house: House) -> None:
    findings = house.verifier.verify_all()
    assert bad(findings) == []
    (adopted,) = [each for each in findings if each.check == "adopted"]
    assert "were signed from" in adopted.detail
    assert any(each.subject == "file artifact/report.json" for each in findings)


def test_it_is_adopted_once(house: House) -> None:
    again = House.open(house.home)
    again.execute()
    again.database.close()
    kinds = [json.loads(record)["kind"] for record in house.audit()]
    assert kinds.count("ADOPTED") == 1
    assert bad(house.verifier.verify_all()) == []


def test_an_execution_interrupted_under_the_old_version_is_closed_by_the_new_one(
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


def test_a_record_changed_before_the_migration_does_not_become_true_by_it(home: Path) -> None:
    with sqlite3.connect(home / "actum.db") as connection:
        connection.execute("DROP TRIGGER audit_is_never_changed")
        connection.execute(
            "UPDATE audit SET record = cast(replace(record, 'PENDING', 'pENDING') AS BLOB)"
            " WHERE seq = 2"
        )
        connection.execute(
            "CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit BEGIN\n"
            "    SELECT RAISE(ABORT, 'audit records are append-only');\nEND"
        )
    connection.close()
    house = House.open(home)
    assert ("audit record 2", "leaf hash") in bad(house.verifier.verify_all())
    house.database.close()


def test_a_migration_that_was_interrupted_is_done_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(cursor: sqlite3.Cursor) -> None:
        cursor.execute("this is no SQL")

    broken = (*MIGRATIONS[:1], (*MIGRATIONS[1], fail))
    monkeypatch.setattr("actum.store.database.MIGRATIONS", broken)
    with pytest.raises(EvidenceUnavailable):
        Database.open(home)
    monkeypatch.undo()
    assert len(old_records(home)) > 10
    house = House.open(home)
    assert bad(house.verifier.verify_all()) == []
    house.database.close()


def test_checkpoints_that_were_taken_away_are_not_taken_for_a_migration(house: House) -> None:
    house.execute()
    tamper(house, "DELETE FROM checkpoints")
    assert any(check == "checkpoint" for _, check in bad(house.verifier.verify_all()))
