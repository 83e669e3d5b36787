"""Sealed executions stay in the journal until a read; every reader sees all of them."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.background_writer import TOO_MANY
from actum.store.database import Database
from actum.value import replace
from common.journals import lying, places, rewrite

from .factories import (
    RESULT,
    House,
    bad,
    make_contract,
    make_events,
    make_facts,
    make_intent,
    make_refusal,
    tamper,
)


def _lying(house: House) -> int:
    """Executions in the journal, read past the house: every other way of reading files first."""
    frames = lying(house.home, house.keyring.signer)
    rows = [row for frame in frames for row in (*frame.started, *frame.ended)]
    return len({row["execution_id"] for row in rows})


def test_a_sealed_execution_is_two_frames_until_it_is_read(house: House) -> None:
    facts = house.execute()
    assert _lying(house) == 1
    assert len(lying(house.home, house.keyring.signer)) == 2
    tables = ("audit", "checkpoints", "executions", "receipts", "evidence_records", "trace_events")
    found = [
        house.database._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in tables
    ]
    assert found == [0] * 6
    known = house.executions.get(facts.execution_id)
    assert known is not None
    assert (known.outcome, known.receipt_id) == (facts.outcome, facts.receipt_id)
    assert _lying(house) == 0
    assert bad(house.verifier.verify_all()) == []
    assert len(house.records.of_execution(facts.execution_id)) == 1
    events = house.database.row("SELECT count(*) FROM trace_events")
    assert events == (len(facts.events),)


def test_what_lies_there_does_not_grow_without_end(house: House) -> None:
    for _ in range(TOO_MANY + 2):
        house.execute()
        assert _lying(house) <= TOO_MANY
    assert _lying(house) == 2
    assert len(house.receipts.latest(10 * TOO_MANY)) == TOO_MANY + 2
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
    (found,) = house.executions.open_executions()  # the read writes it out, still PENDING
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
    assert _lying(house) == 0
    connection = sqlite3.connect(house.database.path)
    assert connection.execute("SELECT receipt_id FROM receipts").fetchall() == [(facts.receipt_id,)]
    connection.close()


def test_nothing_of_it_is_left_in_the_journal_when_it_is_filed(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    said = intent.contract.metadata.purpose.encode()  # stands in what recovery would record
    journal = house.home / "actum.journal"
    assert said in journal.read_bytes()
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert house.executions.open_executions() == ()
    assert journal.read_bytes()[64:].strip(b"\0") == b""
    kept = house.database.row("SELECT owner, opening, pending_seq FROM executions")
    assert kept == (None, None, None)


def test_a_full_disk_lets_everything_be_read(house: House) -> None:
    executed = [house.execute() for _ in range(TOO_MANY)]
    log = house.home / "actum.db-wal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Of the log not one frame more fits; its entries cannot be written out any more.
    house.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    executed.append(house.execute())
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    try:
        with pytest.raises(EvidenceUnavailable, match="cannot take more"):
            house.ledger.write_ahead(make_intent())
        assert _lying(house) == 1
        assert len(house.receipts.latest(10 * TOO_MANY)) == len(executed)
        assert bad(house.verifier.verify_all()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _lying(house) == 1
    assert len(house.receipts.latest(10 * TOO_MANY)) == len(executed)
    assert _lying(house) == 0


@pytest.mark.parametrize("part", ["SUCCEEDED", "receipt_id", "PENDING", "signatures", "opening"])
@pytest.mark.parametrize("tidy", [True, False], ids=["with its checksum", "bytes alone"])
def test_a_change_made_before_filing_is_found_and_named(
    house: House, part: str, tidy: bool
) -> None:
    earlier = house.execute()
    house.database.write_out()
    house.execute()
    house.execute()
    frames = lying(house.home, house.keyring.signer)
    content = (house.home / "actum.journal").read_bytes()
    number = next(
        at for at, place in enumerate(places(house.home)) if part.encode() in content[slice(*place)]
    )
    rewrite(
        house.home,
        number,
        lambda payload: payload.replace(part.encode(), part[::-1].encode(), 1),
        tidy=tidy,
    )
    for opened in (house, House.open(house.home)):
        with pytest.raises(EvidenceUnavailable, match=r"journal .* was changed: frame .*backup"):
            opened.receipts.find(earlier.receipt_id)
        # What is filed is looked at all the same, and is sound.
        assert bad(opened.verifier.verify_all()) == [("journal", "frames")]
        with pytest.raises(EvidenceUnavailable, match=r"was changed"):
            opened.ledger.seal(make_refusal(), None)
    assert len(frames) == 4  # nothing was thrown away for it
    assert len(places(house.home)) == 4


def test_nothing_starts_when_a_changed_journal_would_have_to_be_filed(house: House) -> None:
    house.execute()
    house.execute()
    rewrite(house.home, 0, lambda payload: payload[:-1] + b"?", tidy=True)
    for _ in range(TOO_MANY - 2):
        house.execute()  # by one who has read it while it was right
    for _ in range(3):
        with pytest.raises(EvidenceUnavailable, match="was changed"):
            house.execute()
    stranger = House.open(house.home)  # and by one who has not
    with pytest.raises(EvidenceUnavailable, match="was changed"):
        stranger.execute()


def _cut(house: House, first: int) -> None:
    """Leave the first frames only, zeros behind them: the best that someone without a key can."""
    path = house.home / "actum.journal"
    content = path.read_bytes()
    begin = places(house.home)[first][0]
    with path.open("r+b") as file:
        file.write(content[:begin].ljust(len(content), b"\0"))


def test_frames_taken_away_are_missed_by_whoever_had_seen_them(house: House) -> None:
    house.execute()
    house.execute()
    _cut(house, 2)
    with pytest.raises(EvidenceUnavailable, match="was there and is missing"):
        house.receipts.latest(1)
    assert bad(house.verifier.verify_all()) == [("journal", "frames")]


def test_frames_taken_away_before_an_end_are_missed_by_anyone(house: House) -> None:
    for _ in range(3):
        house.execute()
    content = (house.home / "actum.journal").read_bytes()
    begin, end = places(house.home)[2]
    with (house.home / "actum.journal").open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))
    fresh = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match="frame 2 is damaged, and frame 3 is not"):
        fresh.receipts.latest(1)
    assert bad(fresh.verifier.verify_all()) == [("journal", "frames")]
    with (house.home / "actum.journal").open("r+b") as file:
        file.write(content)
    assert len(House.open(house.home).receipts.latest(9)) == 3


def test_a_frame_of_another_home_or_another_time_is_not_taken(house: House, tmp_path: Path) -> None:
    house.execute()
    other = House.open(tmp_path / "other" / ".actum")
    other.execute()
    theirs = (other.home / "actum.journal").read_bytes()
    ours = (house.home / "actum.journal").read_bytes()
    house.database.close()
    (house.home / "actum.journal").write_bytes(theirs)  # all of it, with its header
    fresh = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match="not written by this home's key"):
        fresh.receipts.latest(1)
    # Our own from before: everything in it is filed already, and is not filed twice.
    (house.home / "actum.journal").write_bytes(ours)
    fresh = House.open(house.home)
    assert len(fresh.receipts.latest(9)) == 1
    assert bad(fresh.verifier.verify_all()) == []
    other.database.close()


def test_an_older_database_does_not_go_with_a_newer_journal(house: House) -> None:
    house.execute()
    house.database.close()
    older = (house.home / "actum.db").read_bytes()
    again = House.open(house.home)
    again.execute()
    again.database.write_out()
    again.execute()
    journal = (house.home / "actum.journal").read_bytes()
    again.database.close()
    (house.home / "actum.db").write_bytes(older)
    (house.home / "actum.journal").write_bytes(journal)
    fresh = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match="begins with audit record 7 where 4 is due"):
        fresh.receipts.latest(1)
    assert ("journal", "frames") in bad(fresh.verifier.verify_all())


@pytest.mark.parametrize("torn", ["start", "end"])
def test_a_frame_cut_off_at_any_byte_never_was(house: House, torn: str) -> None:
    """Its writer was stopped before anybody was answered."""
    house.execute()
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    if torn == "end":
        house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    whole = (house.home / "actum.journal").read_bytes()
    begin, end = places(house.home)[-1]
    house.database.close()
    template = house.home.parent / "template"
    shutil.copytree(house.home, template)
    # As it was while it lay there: the database without anything of it.
    step = max(1, (end - begin) // 60)
    for cut in sorted({*range(begin, begin + 60), *range(begin, end, step), end - 2, end - 1}):
        home = house.home.parent / "torn" / str(cut)
        fresh = _with_journal(template, home, whole[:cut].ljust(len(whole), b"\0"))
        assert len(fresh.receipts.latest(9)) == 1
        known = fresh.executions.get(intent.execution_id)
        assert (known is None) == (torn == "start"), cut
        assert bad(fresh.verifier.verify_all()) == []
        fresh.execute()
        assert bad(fresh.verifier.verify_all()) == []
        fresh.database.close()
        shutil.rmtree(home)


def _with_journal(template: Path, home: Path, journal: bytes) -> House:
    """A home in which only the journal knows anything."""
    home.mkdir(parents=True)
    shutil.copytree(template / "keys", home / "keys")
    Database.open(home).close()
    (home / "actum.journal").write_bytes(journal)
    return House.open(home)


def test_what_a_power_cut_leaves_of_frames_that_nobody_waited_for_is_no_alarm(house: House) -> None:
    """Two were written, the second reached the disk first, and neither was answered."""
    house.execute()
    log = house.ledger.log
    sync, log.sync = log.sync, lambda _ticket: None  # type: ignore[method-assign]
    house.execute()
    log.sync = sync  # type: ignore[method-assign]
    whole = (house.home / "actum.journal").read_bytes()
    begin, end = places(house.home)[2]
    home = house.home.parent / "after"
    lost = whole[:begin] + bytes(end - begin) + whole[end:]
    fresh = _with_journal(house.home, home, lost)
    assert len(fresh.receipts.latest(9)) == 1
    fresh.execute()
    assert bad(fresh.verifier.verify_all()) == []
    assert len(fresh.receipts.latest(9)) == 2


@pytest.mark.parametrize("kept", ["header", "frames"])
def test_a_power_cut_while_it_is_emptied_loses_and_repeats_nothing(house: House, kept: str) -> None:
    house.execute()
    house.execute()
    before, place = (house.home / "actum.journal").read_bytes(), places(house.home)[2]
    house.database.close()
    after = (house.home / "actum.journal").read_bytes()
    begin = place[0]
    # Of the one write that empties it, any part may have reached the disk.
    mixed = {
        "header": after[:64] + before[64:],
        "frames": before[:64] + after[64:begin] + before[begin:],
    }[kept]
    (house.home / "actum.journal").write_bytes(mixed)
    fresh = House.open(house.home)
    assert len(fresh.receipts.latest(9)) == 2
    fresh.execute()
    assert bad(fresh.verifier.verify_all()) == []
    assert len(fresh.receipts.latest(9)) == 3
    assert (house.home / "actum.journal").read_bytes()[64:].strip(b"\0") == b""


def test_filed_and_not_emptied_is_not_filed_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commit and the emptying; others are alive and go on."""
    other = House.open(house.home)
    other.execute()
    monkeypatch.setattr(house.database.journal, "empty", lambda: None)
    house.database.write_out()
    monkeypatch.undo()
    other.execute()
    house.execute()
    assert len(other.receipts.latest(9)) == 3
    assert bad(other.verifier.verify_all()) == []
    assert len(house.audit()) == 9


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


def test_looking_for_an_id_files_nothing_and_sees_everything(house: House) -> None:
    facts = house.execute()
    for each in (house, House.open(house.home)):
        assert each.ledger.log.has(facts.execution_id)
        assert not each.ledger.log.has("another")
        assert _lying(house) == 1
    assert house.executions.get(facts.execution_id)
    assert _lying(house) == 0
    assert house.ledger.log.has(facts.execution_id)
