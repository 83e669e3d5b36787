"""A row has the same columns whether it came by the journal or by a transaction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable
from actum.store.writer import NotOpen, Rows, ended

from .factories import (
    RESULT,
    House,
    bad,
    make_capture,
    make_contract,
    make_events,
    make_facts,
    make_file,
    make_intent,
    make_refusal,
)

TABLES = (
    *("audit", "executions", "receipts", "evidence_records", "trace_events", "blobs"),
    "open_actions",
)


@pytest.fixture
def twins(house: House, tmp_path: Path) -> tuple[House, House]:
    """Two homes with the same key; the second one takes no frame of an execution."""
    copy = tmp_path / "copy" / ".actum"
    shutil.copytree(house.home / "keys", copy / "keys")
    other = House.open(copy)
    other.ledger.log.takes = lambda _: False  # type: ignore[method-assign]
    return house, other


def _rows(house: House, table: str) -> list[tuple[Any, ...]]:
    return house.database.rows(f"SELECT rowid, * FROM {table} ORDER BY rowid")


def test_the_journal_and_a_transaction_write_equal_rows(twins: tuple[House, House]) -> None:
    intents = [make_intent() for _ in range(3)]
    files = (make_file("report.txt", b"some"), make_file("other.txt", b"text"))
    data = {"limit": 2**60, "reason": "caf\u00e9 \ud800", "empty": {}}
    trace = make_events(intents[1].execution_id, **data)
    for house in twins:
        for number, intent in enumerate(intents):
            opened = house.ledger.write_ahead(intent)
            if number == 0:  # one is open, and two are closed
                continue
            events = trace if number == 1 else ()
            facts = make_facts(
                intent, opened=opened, capture=make_capture(collected=files), events=events
            )
            house.ledger.seal(facts, RESULT if number == 1 else None)
    first, second = twins
    assert (first.ledger.log.in_journal(), second.ledger.log.in_journal()) == (3, 0)
    for table in TABLES:
        assert _rows(first, table) == _rows(second, table), table
    counts = [len(_rows(first, table)) for table in TABLES]
    assert counts == [8, 3, 2, 2, len(trace), 2, 0]
    for house in twins:
        assert bad(house.verifier.verify_all()) == []


def test_a_transaction_closes_an_execution_once(twins: tuple[House, House]) -> None:
    _, house = twins
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    before = [_rows(house, table) for table in TABLES]
    with pytest.raises(EvidenceUnavailable, match="not open"):
        house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert [_rows(house, table) for table in TABLES] == before


def test_a_refusal_replaces_a_refusal_and_no_run(house: House) -> None:
    contract = make_contract()
    first, second = make_refusal(contract), make_refusal(contract)
    for refusal in (first, second):
        house.ledger.seal(refusal, RESULT)
    ((_, *row),) = _rows(house, "executions")
    assert row[0] == contract.execution_id
    assert second.receipt_id in row
    assert first.receipt_id not in row
    intent = make_intent(contract)
    opened = house.ledger.write_ahead(intent)
    facts = make_facts(intent, opened=opened)
    house.ledger.seal(facts, RESULT)
    ran = _rows(house, "executions")
    house.ledger.seal(make_refusal(contract), None)
    assert _rows(house, "executions") == ran
    assert len(house.receipts.of_execution(contract.execution_id)) == 4
    assert bad(house.verifier.verify_all()) == []


def test_the_writer_ends_only_an_open_execution(house: House) -> None:
    facts = house.execute()
    receipt = house.receipts.find(facts.receipt_id)
    row = ended(
        [facts.execution_id, "FAILED", "r", "t", "e", "evidence:e", receipt.sha256, 1],
        *(b"", b"{}", receipt.encoded, json.dumps([]).encode()),
    )
    rows = Rows()
    rows.end(row, ())
    with pytest.raises(NotOpen, match=facts.execution_id), house.database.transaction() as cursor:
        rows.insert(cursor)
    assert len(house.receipts.of_execution(facts.execution_id)) == 1
