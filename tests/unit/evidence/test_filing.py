"""Sealed executions lie in one row until somebody wants to read: nobody ever sees less for it."""

from __future__ import annotations

import resource
import sqlite3
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable, Refused
from actum.store.filing import MANY
from actum.value import replace

from .factories import (
    RESULT,
    House,
    bad,
    make_contract,
    make_events,
    make_facts,
    make_intent,
    tamper,
)


def _lying(house: House) -> int:
    """Asked of SQLite itself: every other way of reading files first."""
    count: int = house.database._connection.execute("SELECT count(*) FROM unfiled").fetchone()[0]
    return count


def test_a_sealed_execution_is_one_row_until_it_is_read(house: House) -> None:
    facts = house.execute()
    assert _lying(house) == 1
    tables = ("executions", "receipts", "evidence_records", "trace_events")
    found = [
        house.database._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in tables
    ]
    assert found == [0, 0, 0, 0]
    known = house.executions.get(facts.execution_id)
    assert known is not None
    assert (known.outcome, known.receipt_id) == (facts.outcome, facts.receipt_id)
    assert _lying(house) == 0
    assert bad(house.verifier.verify_all()) == []
    assert len(house.records.of_execution(facts.execution_id)) == 1
    events = house.database.row("SELECT count(*) FROM trace_events")
    assert events == (len(facts.events),)


def test_what_lies_there_does_not_grow_without_end(house: House) -> None:
    for _ in range(MANY + 2):
        house.execute()
        assert _lying(house) <= MANY
    assert _lying(house) == 2
    assert len(house.receipts.latest(10 * MANY)) == MANY + 2
    assert bad(house.verifier.verify_all()) == []


def test_receipts_keep_the_order_in_which_they_were_signed(house: House) -> None:
    first, second = make_intent(), make_intent()
    opened_first = house.ledger.write_ahead(first)
    opened_second = house.ledger.write_ahead(second)
    house.ledger.seal(make_facts(second, opened=opened_second), RESULT)
    house.ledger.seal(make_facts(first, opened=opened_first), RESULT)
    newest_first = [kept.execution_id for kept in house.receipts.latest(2)]
    assert newest_first == [first.execution_id, second.execution_id]


def test_one_that_was_filed_while_it_ran_is_sealed_all_the_same(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    (found,) = house.executions.open_executions()  # whoever looks files it, still PENDING
    assert (found.execution_id, found.alive) == (intent.execution_id, True)
    other = house.execute()  # and another one may have taken its place there
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    for execution_id in (intent.execution_id, other.execution_id):
        assert len(house.receipts.of_execution(execution_id)) == 1
    assert house.executions.open_executions() == ()
    assert bad(house.verifier.verify_all()) == []
    with pytest.raises(EvidenceUnavailable, match="not open"):
        house.ledger.seal(make_facts(intent, opened=opened), RESULT)


def test_an_id_that_lies_unfiled_starts_nothing_else(house: House) -> None:
    contract = make_contract()
    house.ledger.write_ahead(make_intent(contract))
    second = House.open(house.home)
    with pytest.raises(Refused, match="has been started already"):
        second.ledger.write_ahead(make_intent(contract))
    second.database.close()
    assert [each.execution_id for each in house.executions.open_executions()] == [
        contract.execution_id
    ]


def test_whoever_closes_files_and_whoever_opens_sees(house: House) -> None:
    facts = house.execute()
    house.database.close()
    connection = sqlite3.connect(house.database.path)
    assert connection.execute("SELECT count(*) FROM unfiled").fetchone() == (0,)
    assert connection.execute("SELECT receipt_id FROM receipts").fetchall() == [(facts.receipt_id,)]
    connection.close()


def test_a_full_disk_lets_everything_be_read(house: House) -> None:
    executed = [house.execute() for _ in range(MANY)]
    log = house.home / "actum.db-wal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Of the log not one frame more fits; what lies there cannot be filed for good.
    house.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    executed.append(house.execute())
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    try:
        with pytest.raises(EvidenceUnavailable, match="cannot take more"):
            house.ledger.write_ahead(make_intent())
        assert _lying(house) == 1
        assert len(house.receipts.latest(10 * MANY)) == len(executed)
        assert bad(house.verifier.verify_all()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _lying(house) == 1
    assert len(house.receipts.latest(10 * MANY)) == len(executed)
    assert _lying(house) == 0


def test_what_is_sealed_cannot_be_changed_where_it_lies(house: House) -> None:
    house.execute()
    with pytest.raises(sqlite3.IntegrityError, match="not changed"):
        house.database._connection.execute("UPDATE unfiled SET outcome = 'FAILED'")


@pytest.mark.parametrize(
    "change", ["outcome = 'TOOL_ERROR'", "record = '{}'", "events = '[]'", "session = 'other'"]
)
def test_a_change_made_before_filing_is_found_after_it(house: House, change: str) -> None:
    house.execute()
    connection = house.database._connection
    connection.execute("DROP TRIGGER unfiled_is_closed_once")
    connection.execute(f"UPDATE unfiled SET {change}")
    assert bad(house.verifier.verify_all())


@pytest.mark.parametrize("change", ["events = 'no JSON'", "evidence_id = NULL", "outcome = NULL"])
def test_a_row_that_was_made_unfit_is_named_with_a_remedy_that_helps(
    house: House, change: str
) -> None:
    earlier = house.execute()
    connection = house.database._connection
    connection.execute("DROP TRIGGER unfiled_is_closed_once")
    connection.execute(f"UPDATE unfiled SET {change}")
    with pytest.raises(EvidenceUnavailable, match=r"not as it was laid there.*from a backup"):
        house.receipts.find(earlier.receipt_id)
    assert bad(house.verifier.verify_all()) == [("database", "readable")]
    assert _lying(house) == 1  # nothing was thrown away for it
    for _ in range(MANY - 1):
        house.execute()
    for _ in range(3):
        with pytest.raises(EvidenceUnavailable, match="not as it was laid there"):
            house.execute()
    assert _lying(house) == MANY


def test_a_row_taken_away_before_filing_is_missed(house: House) -> None:
    house.execute()
    house.database._connection.execute("DELETE FROM unfiled")
    assert ("audit record 3", "receipt") in bad(house.verifier.verify_all())


def test_tampering_in_the_tables_is_found_as_ever(house: House) -> None:
    house.execute()
    tamper(house, "UPDATE receipts SET envelope = replace(envelope, 'a', 'b')")
    assert bad(house.verifier.verify_all())


@pytest.mark.parametrize(
    "data",
    [
        {"path": 'a\udcff\0\u2028"\\/\x7f<\u00e9'},
        {"figures": [0, -1, 2**53 + 1, 0.1, 1e300, True, None], "empty": {}, "list": []},
    ],
    ids=["text", "figures"],
)
def test_events_are_filed_as_they_were_signed(house: House, data: dict[str, Any]) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    events = make_events(intent.execution_id, **data)
    house.ledger.seal(make_facts(intent, opened=opened, events=events), RESULT)
    assert bad(house.verifier.verify_all()) == []
    assert house.database.row("SELECT count(*) FROM trace_events") == (len(events),)


@pytest.mark.parametrize(
    "field",
    [{"duration_ms": 12.5}, {"attempt": "one"}, {"runner_type": None}, {"container_id": 5}],
    ids=str,
)
def test_an_event_that_cannot_be_filed_is_not_laid_in_the_way_of_the_others(
    house: House, field: dict[str, Any]
) -> None:
    earlier = house.execute()
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    events = tuple(
        replace(kept, event=replace(kept.event, **field))
        for kept in make_events(intent.execution_id)
    )
    with pytest.raises(EvidenceUnavailable, match="another type"):
        house.ledger.seal(make_facts(intent, opened=opened, events=events), RESULT)
    assert house.receipts.find(earlier.receipt_id).execution_id == earlier.execution_id
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert bad(house.verifier.verify_all()) == []
