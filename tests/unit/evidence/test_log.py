"""The log grows only from the end that was signed last, and proves its records to strangers."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.proof import check_proof, find_record, prove
from actum.evidence.verify.log_findings import read_log
from actum.evidence.verify.unwritten import reading
from actum.store import note
from actum.store.merkle import Edge, leaf_hash

from .factories import STARTED, House, bad, make_intent, make_refusal, tamper


def rebuilt(house: House) -> Edge:
    edge = Edge()
    for record in house.audit():
        edge, _ = edge.grown(leaf_hash(record))
    return edge


def test_every_end_leaves_a_checkpoint_over_all_records_so_far(house: House) -> None:
    house.execute()
    house.ledger.seal(make_refusal(), None)
    house.ledger.malformed(b"", STARTED)
    house.ledger.write_ahead(make_intent())  # only announced; signed because it gets filed
    checkpoints = house.database.rows("SELECT size, note FROM checkpoints ORDER BY size")
    assert [size for size, _ in checkpoints] == [3, 5, 6, 8]
    edge = Edge()
    roots = {}
    for record in house.audit():
        edge, _ = edge.grown(leaf_hash(record))
        roots[edge.size] = edge.root
    for size, text in checkpoints:
        found = note.parse(text)
        assert (found.checkpoint.size, found.checkpoint.root) == (size, roots[size])
        assert note.verify(found, [house.keyring.signer.public]) == (house.keyring.signer.keyid,)
        assert found.checkpoint.origin == f"actum/{house.keyring.signer.keyid[:32]}"


def test_checkpoint_and_records_are_one_commit(house: House) -> None:
    # The checkpoint cannot be written: then the record is not there either.
    house.database._connection.execute(
        "CREATE TRIGGER no_checkpoint BEFORE INSERT ON checkpoints BEGIN"
        " SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(EvidenceUnavailable):
        house.ledger.malformed(b"", STARTED)
    house.database._connection.execute("DROP TRIGGER no_checkpoint")
    assert house.audit() == []
    house.execute()  # and what was remembered of it does not get in the way
    assert bad(house.verifier.verify_all()) == []


def test_a_second_process_continues_the_same_tree(house: House) -> None:
    other = House.open(house.home)
    for each in (house, other, other, house, other):
        each.execute()
    other.database.close()
    assert bad(house.verifier.verify_all()) == []
    newest = note.parse(house.ledger.log.checkpoint() or "")
    assert newest.checkpoint.root == rebuilt(house).root
    assert newest.checkpoint.size == 15


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit WHERE seq = 6",
        "DELETE FROM checkpoints",
        "DELETE FROM checkpoints WHERE size = 6",
        "UPDATE audit SET nodes = zeroblob(32) WHERE seq = 6",
        "UPDATE audit SET nodes = x'' WHERE seq = 4",
        "UPDATE checkpoints SET note = replace(note, 'actum/', 'other/') WHERE size = 6",
        "UPDATE checkpoints SET note = '' WHERE size = 6",
        "UPDATE checkpoints SET note = '?' WHERE size = 6",
    ],
)
def test_nothing_is_added_to_a_log_whose_end_was_changed(house: House, statement: str) -> None:
    house.execute()
    house.execute()
    tamper(house, statement)
    before = house.audit()
    reopened = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match=r"was changed.*actum verify --all"):
        reopened.ledger.write_ahead(make_intent())
    reopened.database.close()
    assert house.audit() == before
    assert bad(house.verifier.verify_all())


def test_a_log_signed_by_a_stranger_is_not_continued(house: House, tmp_path: Path) -> None:
    house.execute()
    stranger = House.open(tmp_path / "other" / ".actum")
    found = note.parse(house.ledger.log.checkpoint() or "")
    forged = note.sign(found.checkpoint, [stranger.keyring.signer])
    tamper(house, "UPDATE checkpoints SET note = ? WHERE size = 3", forged)
    reopened = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match="was changed"):
        reopened.ledger.malformed(b"", STARTED)
    reopened.database.close()
    stranger.database.close()
    assert ("checkpoint 3", "signature") in bad(house.verifier.verify_all())


def bundle_of(house: House, wanted: str) -> dict[str, Any]:
    bundle: dict[str, Any] = json.loads(
        json.dumps(prove(house.database, find_record(house.database, wanted)))
    )
    return bundle


def test_a_proof_stands_alone_for_every_record(house: House) -> None:
    facts = [house.execute() for _ in range(4)]
    trusted = {house.keyring.signer.keyid: house.keyring.signer.public}
    for seq in range(1, 13):
        assert bad(check_proof(bundle_of(house, str(seq)), trusted)) == []
    assert bundle_of(house, facts[1].receipt_id) == bundle_of(house, facts[1].execution_id)
    record = json.loads(bundle_of(house, facts[1].execution_id)["record"])
    assert (record["kind"], record["execution_id"]) == ("FINAL", facts[1].execution_id)
    for unknown in ("99", "0", "nobody"):
        with pytest.raises(Refused) as caught:
            bundle_of(house, unknown)
        assert caught.value.code == "RECORD_UNKNOWN"


def test_a_changed_proof_proves_nothing(house: House, tmp_path: Path) -> None:
    for _ in range(4):
        house.execute()
    trusted = {house.keyring.signer.keyid: house.keyring.signer.public}
    bundle = bundle_of(house, "5")
    raw = bytearray(base64.b64decode(bundle["proof"][1]))
    raw[3] ^= 1
    broken = [bundle["proof"][0], base64.b64encode(raw).decode(), *bundle["proof"][2:]]
    for change in (
        {"seq": 6},
        {"seq": "5"},
        {"record": bundle["record"].replace("PENDING", "pENDING")},
        {"record": "no JSON"},
        {"proof": bundle["proof"][:-1]},
        {"proof": [*bundle["proof"], bundle["proof"][0]]},
        {"proof": broken},
        {"proof": ["?"]},
        {"proof": None},
        {"checkpoint": bundle["checkpoint"].replace("12", "13")},
        {"more": 1},
    ):
        assert bad(check_proof({**bundle, **change}, trusted)), change
    assert bad(check_proof(bundle, {}))


def test_reading_the_log_finds_what_is_open(house: House) -> None:
    facts = house.execute()
    running = make_intent()
    opened = house.ledger.write_ahead(running)
    # Someone asks for the running id again and is refused: that closes nothing.
    house.ledger.seal(make_refusal(running.contract), None)
    with reading(house.home, house.keyring.signer) as (found, _):
        unclosed = read_log(found, house.keyring.trusted).facts.unclosed
    assert unclosed == {running.execution_id: opened.pending_seq}
    assert facts.execution_id not in unclosed
    assert bad(house.verifier.verify_all()) == []


def test_the_stored_schema_is_part_of_what_is_verified(house: House) -> None:
    with sqlite3.connect(house.database.path) as other:
        other.execute("DROP TRIGGER audit_is_never_removed")
    other.close()
    assert bad(house.verifier.verify_all()) == [("database", "schema")]
