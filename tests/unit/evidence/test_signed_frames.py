"""A frame holds signed receipts; every reader finds a signed checkpoint over all of it.

That holds for every way to read, after a writer that was killed, and for frames of older versions.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable
from actum.evidence.background_writer import TOO_MANY
from actum.evidence.log import Log
from actum.evidence.proof import check_proof, find_record, prove
from actum.evidence.records.encoding import encoded
from actum.store import dsse, frames, note
from actum.store.merkle import Edge, leaf_hash
from common.journals import lying

from .factories import RESULT, House, bad, make_capture, make_facts, make_file, make_intent


def _stored(house: House) -> list[int]:
    """Sizes of the checkpoints in the tables, read past the house."""
    rows = house.database._connection.execute("SELECT size FROM checkpoints ORDER BY size")
    return [size for (size,) in rows]


def _newest(house: House) -> note.Note:
    """The newest checkpoint in the tables, which must be signed by this home's key."""
    (text,) = house.database._connection.execute(
        "SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1"
    ).fetchone()
    found = note.parse(text)
    assert note.verify(found, house.keyring.trusted.values())
    return found


def _checkpoint(house: House) -> None:
    assert note.parse(house.ledger.log.checkpoint() or "").checkpoint.size == 5


def _verify(house: House) -> None:
    assert bad(house.verifier.verify_all()) == []


def _prove(house: House) -> None:
    bundle = json.loads(json.dumps(prove(house.database, find_record(house.database, "5"))))
    assert bad(check_proof(bundle, house.keyring.trusted)) == []


def _receipts(house: House) -> None:
    (kept,) = house.receipts.latest(9)
    assert bad(house.verifier.verify_execution(kept.receipt_id)) == []


def _executions(house: House) -> None:
    assert len(house.executions.open_executions()) == 1


def _records(house: House) -> None:
    assert len(house.audit()) == 5


_LOOKS = [_checkpoint, _verify, _prove, _receipts, _executions, _records]


def _one_and_a_start(house: House) -> None:
    house.execute()
    house.ledger.write_ahead(make_intent())


@pytest.mark.parametrize("look", _LOOKS)
def test_whoever_looks_finds_everything_under_a_signature(
    house: House, look: Callable[[House], None]
) -> None:
    _one_and_a_start(house)
    assert [frame.note for frame in lying(house.home, house.keyring.signer)] == [None] * 3
    assert _stored(house) == []
    look(house)
    assert _newest(house).checkpoint.size == 5
    assert _stored(house) == [5]


def _killed(home: Path) -> None:
    _one_and_a_start(House.open(home))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("look", _LOOKS)
def test_so_does_whoever_opens_a_home_whose_writer_was_killed(
    tmp_path: Path, look: Callable[[House], None]
) -> None:
    home = tmp_path / ".actum"
    House.open(home).database.close()
    process = get_context("fork").Process(target=_killed, args=(home,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    house = House.open(home)
    assert len(lying(home, house.keyring.signer)) == 3
    assert _stored(house) == []
    look(house)
    assert _newest(house).checkpoint.size == 5
    house.database.close()


def test_closing_signs(house: House) -> None:
    house.execute()
    house.database.close()
    again = House.open(house.home)
    assert _stored(again) == [3]
    assert _newest(again).checkpoint.size == 3
    again.database.close()


def test_one_signature_serves_all_that_are_filed_together(house: House) -> None:
    for _ in range(TOO_MANY + 1):
        house.execute()
    assert _stored(house) == [3 * TOO_MANY]
    assert len(lying(house.home, house.keyring.signer)) == 2
    _verify(house)
    assert _stored(house) == [3 * TOO_MANY, 3 * TOO_MANY + 3]


def test_frames_are_signed_by_the_key_whose_turn_it_was(house: House) -> None:
    other = House.open(house.home)
    _one_and_a_start(other)
    intent = make_intent()
    opened = other.ledger.write_ahead(intent)
    rotated = house.rotate()
    # Between the two frames of this one another key has come.
    receipt = other.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert receipt.envelope["signatures"][0]["keyid"] == rotated.signer.keyid
    other.database.close()
    again = House.open(house.home)
    assert bad(again.verifier.verify_all()) == []
    assert _stored(again) == [7, 8, 9]
    signed_by = [
        note.verify(note.parse(text), again.keyring.trusted.values())
        for (text,) in again.database.rows("SELECT note FROM checkpoints ORDER BY size")
    ]
    heir = rotated.signer.keyid
    assert signed_by == [(rotated.retired,), (rotated.retired, heir), (heir,)]
    again.database.close()


def _without_signatures(first: int, parts: list[frames.Part]) -> list[frames.Part]:
    """As the version before wrote it: the statement, and the audit record without its digest."""
    frame = frames.unpacked(frames.packed(first, parts))
    others = [part for part in parts if part[0] != frames.END]
    for row in frame.ended:
        final = frame.records[row["final_seq"] - first]
        others.remove((frames.RECORD, (final,)))
        statement = base64.b64decode(json.loads(row["envelope"])["payload"])
        documents = (
            *(row["result_json"].encode(), row["record"].encode(), statement),
            *(row["events"].encode(), encoded({**json.loads(final), "receipt_sha256": ""})),
        )
        short = encoded([row[name] for name in frames.TO_SIGN])
        others.append((frames.SEALED, frames.columns(short, *documents)))
    return others


def _unsigned(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write as the version before did."""
    log = house.ledger.log

    def append_frame(first: int, last: int, parts: list[frames.Part], outcomes: Any) -> int:
        return Log.append_frame(log, first, last, _without_signatures(first, parts), outcomes)

    monkeypatch.setattr(log, "append_frame", append_frame)


def test_frames_of_the_version_before_are_signed_when_they_are_filed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        _unsigned(house, before)
        old = house.execute(capture=make_capture(collected=(make_file("report.json", b"{}"),)))
    *_, frame = lying(house.home, house.keyring.signer)
    assert [row["receipt_id"] for row in frame.sealed] == [old.receipt_id]
    assert b'"sig"' not in (house.home / "actum.journal").read_bytes()
    newest = House.open(house.home)
    _one_and_a_start(newest)  # goes on behind them, unfiled
    assert [len(frame.sealed) for frame in lying(house.home, house.keyring.signer)] == [
        *(0, 1),
        *(0, 0, 0),
    ]
    _verify(newest)
    assert _newest(newest).checkpoint.size == 8
    filed = newest.receipts.find(old.receipt_id)
    assert dsse.verify(filed.envelope, house.keyring.trusted)
    assert json.loads(newest.audit()[2])["receipt_sha256"] == filed.sha256
    newest.database.close()


def test_a_thread_that_files_behind_signs_frames_of_the_version_before(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        _unsigned(house, before)
        old = [house.execute() for _ in range(6)]
    new = house.execute()
    log = house.ledger.log
    batch = log.batch()
    while batch.step():
        pass
    log.finish(batch)
    assert lying(house.home, house.keyring.signer) == []
    for facts in (*old, new):
        assert dsse.verify(house.receipts.find(facts.receipt_id).envelope, house.keyring.trusted)
    _verify(house)


def _as_long_before(house: House, monkeypatch: pytest.MonkeyPatch, forged: bool = False) -> None:
    """Write as the first version with a journal did: what ends something with a checkpoint."""
    log = house.ledger.log
    signer = house.keyring.signer

    edge = Edge()

    def append_frame(first: int, last: int, parts: list[frames.Part], outcomes: Any) -> int:
        nonlocal edge
        for kind, (content, *_) in parts:
            if kind == frames.RECORD:
                edge, _ = edge.grown(leaf_hash(content))
        if any(kind == frames.END for kind, _ in parts):
            origin = f"actum/{signer.keyid[:32]}"
            root = bytes(32) if forged else edge.root
            over = note.Checkpoint(origin=origin, size=last, root=root)
            parts = [*parts, (frames.NOTE, (note.sign(over, (signer,)).encode(),))]
        return Log.append_frame(log, first, last, parts, outcomes)

    monkeypatch.setattr(log, "append_frame", append_frame)


def test_checkpoints_in_frames_of_an_older_version_are_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        _as_long_before(house, before)
        house.execute()
        house.execute()
    newest = House.open(house.home)
    assert [frame.note is None for frame in lying(house.home, house.keyring.signer)] == [
        *(True, False),
        *(True, False),
    ]
    _one_and_a_start(newest)  # goes on behind them, unfiled
    _verify(newest)
    assert _stored(newest) == [3, 6, 11]
    assert _newest(newest).checkpoint.size == 11
    newest.database.close()


def test_nothing_is_signed_twice_for_an_older_version(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        _as_long_before(house, before)
        house.execute()
    assert len(house.receipts.latest(9)) == 1
    assert _stored(house) == [3]
    house.execute()
    _verify(house)
    assert _stored(house) == [3, 6]


def test_a_checkpoint_in_a_frame_that_is_over_something_else_is_not_filed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        _as_long_before(house, before, forged=True)
        house.execute()
    with pytest.raises(EvidenceUnavailable, match="its checkpoint is not over audit records 1 to"):
        house.receipts.latest(9)


def test_a_receipt_is_filed_as_it_was_signed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    receipt = house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    *_, frame = lying(house.home, house.keyring.signer)
    assert [row["envelope"].encode() for row in frame.ended] == [receipt.encoded]
    assert dsse.verify(receipt.envelope, house.keyring.trusted)

    def sign(*_: object) -> bytes:
        raise AssertionError("it was signed before")

    monkeypatch.setattr(dsse, "sign_encoded", sign)
    newest = House.open(house.home)  # as a process would that comes after ours was killed
    filed = newest.receipts.find(receipt.receipt_id)
    assert (filed.encoded, filed.sha256) == (receipt.encoded, receipt.sha256)
    assert json.loads(newest.audit()[-1])["receipt_sha256"] == receipt.sha256
    _verify(newest)
    newest.database.close()


def test_a_receipt_is_signed_by_the_key_that_its_execution_ended_under(house: House) -> None:
    facts = house.execute()
    before = house.keyring.signer.keyid
    house.rotate()
    house.execute()
    (signature,) = house.receipts.find(facts.receipt_id).envelope["signatures"]  # type: ignore[misc]
    assert signature["keyid"] == before  # type: ignore[index, call-overload]
    _verify(House.open(house.home))


def test_of_a_log_that_cannot_be_filed_every_look_finds_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = house.execute()
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def touch() -> None:
        raise full

    monkeypatch.setattr(house.database.journal, "touch", touch)
    first, second = (house.receipts.find(facts.receipt_id) for _ in range(2))
    assert first == second
    assert len(lying(house.home, house.keyring.signer)) == 2
