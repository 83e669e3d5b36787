"""Verification sees what is only in the journal, writes nothing, and minds no one who writes."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from actum.contract.canonical import sha256_bytes
from actum.evidence.journal_entry import closed_part, opened_part
from actum.evidence.owner import current_owner
from actum.evidence.verify.findings import Finding
from actum.evidence.verify.home import verify_home
from actum.evidence.verify.unwritten import reading
from actum.store.keys import Keyring

from .factories import (
    House,
    bad,
    make_capture,
    make_facts,
    make_file,
    make_intent,
    make_refusal,
)


def verified(home: Path) -> tuple[Finding, ...]:
    keyring = Keyring.open(home)
    return verify_home(home, keyring.signer, keyring.trusted)


def contents(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


def fill(house: House) -> None:
    """In the tables: an end, a refusal, two that run. In the journal: the end of one of these,
    another that runs, one with a file, and actions of which one has ended."""
    house.execute()
    house.ledger.seal(make_refusal(), None)
    running = make_intent()
    opened = house.ledger.write_ahead(running)
    house.ledger.write_ahead(make_intent())
    with house.ledger.log.entry() as entry:
        for number in range(2):
            record = {"v": 3, "kind": "ACTION", "event_type": "action_audit", "status": "PENDING"}
            owner = f"{current_owner()} {number}"
            digest = sha256_bytes(owner.encode())
            seq = entry.append({**record, "pending_seq": None, "owner_sha256": digest})
            entry.add(opened_part(seq, owner))
    house.database.write_out()
    house.ledger.seal(make_facts(running, opened=opened), {"outcome": "SUCCEEDED"})
    house.ledger.write_ahead(make_intent())
    house.execute(capture=make_capture(collected=(make_file("report.json", b"{}"),)))
    with house.ledger.log.entry() as entry:
        ended = {"v": 3, "kind": "ACTION", "event_type": "action_audit", "status": "SUCCESS"}
        entry.append({**ended, "pending_seq": seq})
        entry.add(closed_part(seq))


def test_what_is_in_the_journal_is_verified_and_stays_there(house: House) -> None:
    fill(house)
    before = contents(house.home)
    findings = verified(house.home)
    assert bad(findings) == []
    assert findings[0].detail == "5 frames not written out yet"
    assert contents(house.home) == before
    with reading(house.home, house.keyring.signer) as (found, _):
        seen = {
            table: sorted(found.scan(table))
            for table in (
                "audit",
                "executions",
                "receipts",
                "trace_events",
                "open_actions",
                "blobs",
            )
        }
    # The control: written out for good, it is the same.
    house.database.write_out()
    for table, rows in seen.items():
        assert rows == sorted(house.database.rows(f"SELECT * FROM {table}")), table
    assert bad(verified(house.home)) == []


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("UPDATE executions SET session = 'x' WHERE state = 'PENDING'", "execution"),
        ("DELETE FROM open_actions", "open action"),
        ("UPDATE open_actions SET owner = 'x'", "open action"),
        ("DELETE FROM trace_events WHERE seq = 1", "trace"),
        ("UPDATE checkpoints SET number = 7 WHERE number = 1", "checkpoint"),
    ],
)
def test_changes_of_the_tables_are_found_beside_a_journal(
    house: House, statement: str, subject: str
) -> None:
    fill(house)
    connection = sqlite3.connect(house.database.path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    triggers = triggers.fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    assert connection.execute(statement).rowcount > 0
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()
    found = bad(verified(house.home))
    assert any(subject in name for name, _ in found), found


def test_a_home_without_its_journal_is_a_finding(house: House) -> None:
    house.execute()
    house.database.write_out()
    assert bad(verified(house.home)) == []
    (house.home / "actum.journal").rename(house.home / "elsewhere")
    assert bad(verified(house.home)) == [("journal", "frames")]
    (house.home / "elsewhere").rename(house.home / "actum.journal")


def test_executions_that_come_meanwhile_are_no_findings(house: House) -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            house.execute()
            house.ledger.seal(make_refusal(), None)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(10):
            assert bad(verified(house.home)) == []
    finally:
        over.set()
        worker.join()
    assert bad(verified(house.home)) == []
