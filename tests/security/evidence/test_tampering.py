"""Every edit, deletion, swap and truncation is found, and its place is named.

The attacker here has the whole home except the private key, a SQLite shell, and knows the tree:
they drop the triggers and put them back. Each test has its control: the untouched copy verifies.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from evidence.factories import (
    STARTED,
    House,
    bad,
    make_capture,
    make_file,
    make_intent,
    make_refusal,
    tamper,
)

from actum.errors import ActumError, VerificationFailed
from actum.evidence.rotation import rotate
from actum.evidence.verify.receipt_verifier import verify_file
from actum.store import note
from actum.store.blobs import SMALL_BYTES
from actum.store.keys import Keyring
from actum.store.merkle import Edge, leaf_hash

LARGE = make_file("large.bin", bytes(range(256)) * (SMALL_BYTES // 256 + 1))
SMALL = make_file("report.json", b'{"ok":true}')

#: Tables of the evidence rooms. What other rooms keep is theirs to prove.
TABLES = (
    *("audit", "checkpoints", "receipts", "evidence_records", "trace_events"),
    *("executions", "blobs"),
)


def furnish(home: Path) -> None:
    """One of every kind of record: ran, refused, malformed, rotated, open."""
    house = House.open(home)
    house.execute(capture=make_capture(collected=(SMALL, LARGE)))
    house.ledger.seal(make_refusal(), None)
    house.ledger.malformed(b"not: [a contract", STARTED)
    rotate(house.ledger, root=home.parent, home=home, approving=house.keyring.approving, at=STARTED)
    house.execute()
    house.execute()
    house.ledger.write_ahead(make_intent())
    house.database.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / ".actum"
    furnish(home)
    return home


@pytest.fixture
def copies(template: Path, tmp_path: Path) -> Iterator[Callable[[], House]]:
    """Fresh copies of the same home."""
    opened: list[House] = []

    def copy() -> House:
        home = tmp_path / str(len(opened)) / ".actum"
        shutil.copytree(template, home)
        opened.append(House.open(home))
        return opened[-1]

    yield copy
    for house in opened:
        house.database.close()


def kept_checkpoint(house: House) -> tuple[str, str]:
    return house.ledger.log.checkpoint() or "", "kept.txt"


def columns(house: House, table: str) -> list[str]:
    return [row[1] for row in house.database.rows(f"PRAGMA table_info({table})")]


def edited(value: Any) -> Any:
    if value is None:
        return "edited"
    if isinstance(value, int):
        return value + 1_000
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "edited"


def test_the_untouched_home_verifies_also_against_a_kept_checkpoint(
    copies: Callable[[], House],
) -> None:
    house = copies()
    assert bad(house.verifier.verify_all(kept_checkpoint(house))) == []
    assert bad(house.verifier.verify_log(kept_checkpoint(house))) == []


#: How a row is called in what is reported, and which of its values says so.
NAMES = {
    "audit": ("audit record", "seq"),
    "checkpoints": ("checkpoint", "size"),
    "receipts": ("receipt", "receipt_id"),
    "evidence_records": ("evidence record", "evidence_id"),
    "trace_events": ("trace", "execution_id"),
    "executions": ("execution", "execution_id"),
    "blobs": ("file", "blake3"),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_field_of_every_record_is_watched(copies: Callable[[], House], table: str) -> None:
    house = copies()
    names = columns(house, table)
    rows = house.database.rows(f"SELECT rowid, {', '.join(names)} FROM {table}")
    assert rows
    word, _ = NAMES[table]
    tried = 0
    for rowid, *values in rows:
        for name, value in zip(names, values, strict=True):
            where = f"UPDATE {table} SET {name} = ? WHERE rowid = ?"
            changed = edited(value)
            try:
                tamper(house, where, changed, rowid)
            except sqlite3.IntegrityError:
                continue  # the schema itself does not take it
            moved = changed if names[0] == name and isinstance(value, int) else rowid
            found = bad(house.verifier.verify_all())
            assert found, (table, name, rowid)
            assert any(word in subject for subject, _ in found), (table, name, found)
            tamper(house, where, value, moved)
            tried += 1
    assert tried >= len(names) - 1
    assert bad(house.verifier.verify_all()) == []  # everything was put back


@pytest.mark.parametrize("table", TABLES)
def test_every_deleted_record_is_missed(copies: Callable[[], House], table: str) -> None:
    house = copies()
    names = columns(house, table)
    marks = ", ".join("?" for _ in names)
    for row in house.database.rows(f"SELECT rowid, {', '.join(names)} FROM {table}"):
        rowid, *values = row
        tamper(house, f"DELETE FROM {table} WHERE rowid = ?", rowid)
        assert bad(house.verifier.verify_all()), (table, rowid)
        tamper(
            house,
            f"INSERT INTO {table} (rowid, {', '.join(names)}) VALUES (?, {marks})",
            rowid,
            *values,
        )
    assert bad(house.verifier.verify_all()) == []


@pytest.mark.parametrize("table", ["audit", "receipts", "evidence_records", "checkpoints"])
def test_every_swapped_pair_is_noticed(copies: Callable[[], House], table: str) -> None:
    house = copies()
    content = {"audit": "record, nodes", "checkpoints": "note"}.get(table)
    content = content or ", ".join(columns(house, table)[1:])
    rows = house.database.rows(f"SELECT rowid, {content} FROM {table} ORDER BY rowid")
    assignments = ", ".join(f"{name.strip()} = ?" for name in content.split(","))
    for first, second in pairwise(rows):
        update = f"UPDATE {table} SET {assignments} WHERE rowid = ?"
        tamper(house, update, *second[1:], first[0])
        tamper(house, update, *first[1:], second[0])
        assert bad(house.verifier.verify_all()), (table, first[0])
        tamper(house, update, *first[1:], first[0])
        tamper(house, update, *second[1:], second[0])
    assert bad(house.verifier.verify_all()) == []


def rehash(house: House) -> None:
    """Work the whole tree out again, so that records and nodes agree."""
    edge = Edge()
    for seq, record in house.database.rows("SELECT seq, record FROM audit ORDER BY seq"):
        edge, nodes = edge.grown(leaf_hash(record))
        tamper(house, "UPDATE audit SET nodes = ? WHERE seq = ?", nodes, seq)


def test_a_record_changed_together_with_all_hashes_is_pinned_down_to_its_commit(
    copies: Callable[[], House],
) -> None:
    house = copies()
    kept = kept_checkpoint(house)
    for seq, record in house.database.rows("SELECT seq, record FROM audit ORDER BY seq"):
        document = json.loads(record)
        changed = json.dumps({**document, "ts": "2001-01-01T00:00:00.000Z"}).encode()
        tamper(house, "UPDATE audit SET record = ? WHERE seq = ?", changed, seq)
        rehash(house)
        sizes = [0, *(size for (size,) in house.database.rows("SELECT size FROM checkpoints"))]
        last = next(size for size in sizes if size >= seq)
        first = max(size for size in sizes if size < seq) + 1
        found = bad(house.verifier.verify_all(kept))
        assert (f"audit records {first} to {last}", "root") in found, seq
        assert ("kept checkpoint kept.txt", "consistency") in found
        tamper(house, "UPDATE audit SET record = ? WHERE seq = ?", record, seq)
        rehash(house)
    assert bad(house.verifier.verify_all(kept)) == []


def cut(house: House, size: int) -> None:
    """Leave the first `size` records, as if the rest had never been: the best an attacker can."""
    gone = house.database.rows("SELECT receipt_id FROM receipts WHERE final_seq > ?", (size,))
    receipts = [receipt for (receipt,) in gone]
    marks = ", ".join("?" for _ in receipts)
    connection = house.database._connection
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(
        f"DELETE FROM evidence_records WHERE evidence_id IN (SELECT evidence_id FROM receipts"
        f" WHERE receipt_id IN ({marks}))",
        receipts,
    )
    connection.execute(f"DELETE FROM trace_events WHERE receipt_id IN ({marks})", receipts)
    connection.execute(f"DELETE FROM executions WHERE receipt_id IN ({marks})", receipts)
    connection.execute("DELETE FROM executions WHERE pending_seq > ?", (size,))
    connection.execute(f"DELETE FROM receipts WHERE receipt_id IN ({marks})", receipts)
    connection.execute("DELETE FROM audit WHERE seq > ?", (size,))
    connection.execute("DELETE FROM checkpoints WHERE size > ?", (size,))
    for _, sql in triggers:
        connection.execute(sql)


@pytest.mark.parametrize("records", [1, 2, 3, 5, 8])
def test_a_tail_cut_off_without_a_trace_is_seen_by_a_kept_checkpoint_only(
    copies: Callable[[], House], records: int
) -> None:
    house = copies()
    kept = kept_checkpoint(house)
    sizes = [size for (size,) in house.database.rows("SELECT size FROM checkpoints")]
    cut(house, max(size for size in sizes if size <= sizes[-1] - records))
    found = bad(house.verifier.verify_all(kept))
    assert ("kept checkpoint kept.txt", "consistency") in found
    assert ("kept checkpoint kept.txt", "consistency") in bad(house.verifier.verify_log(kept))
    (finding,) = [
        each
        for each in house.verifier.verify_log(kept)
        if (each.subject, each.check) == ("kept checkpoint kept.txt", "consistency")
    ]
    assert "cut off" in finding.detail


def test_a_tail_cut_off_while_an_execution_stays_open_is_seen_without_one(
    copies: Callable[[], House],
) -> None:
    house = copies()
    tamper(house, "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)")
    found = [subject for subject, _ in bad(house.verifier.verify_all())]
    assert any(subject.startswith("audit records") for subject in found)


def test_a_forked_log_is_not_the_one_a_checkpoint_was_kept_of(
    template: Path, tmp_path: Path
) -> None:
    # The same home, continued in two ways, with the right key both times.
    ours, fork = tmp_path / "ours" / ".actum", tmp_path / "fork" / ".actum"
    shutil.copytree(template, ours)
    shutil.copytree(template, fork)
    first, second = House.open(ours), House.open(fork)
    first.execute()
    second.execute()
    second.execute()
    kept = kept_checkpoint(first)
    assert bad(first.verifier.verify_all(kept)) == []
    assert bad(second.verifier.verify_all()) == []
    assert ("kept checkpoint kept.txt", "consistency") in bad(second.verifier.verify_all(kept))
    first.database.close()
    second.database.close()


def test_a_checkpoint_of_another_home_does_not_fit(
    copies: Callable[[], House], tmp_path: Path
) -> None:
    house = copies()
    other = House.open(tmp_path / "other" / ".actum")
    other.execute()
    found = bad(house.verifier.verify_all(kept_checkpoint(other)))
    assert found == [("kept checkpoint kept.txt", "signature")]
    other.database.close()


def positions(length: int) -> list[int]:
    return sorted({0, 1, length // 2, length - 1, *range(0, length, max(1, length // 60))})


def flipped(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1
    return bytes(changed)


def test_every_sampled_byte_of_a_kept_checkpoint_counts(copies: Callable[[], House]) -> None:
    house = copies()
    text, name = kept_checkpoint(house)
    raw = text.encode()
    for position in range(len(raw)):
        changed = flipped(raw, position).decode(errors="replace")
        found = bad(house.verifier.verify_log((changed, name)))
        assert found == [("kept checkpoint kept.txt", "signature")], position


def test_every_sampled_byte_of_an_exported_receipt_counts(copies: Callable[[], House]) -> None:
    house = copies()
    path = house.receipts.export(house.receipts.latest(1)[0].receipt_id)
    whole = path.read_bytes()
    assert bad(verify_file(path, house.keyring.trusted)) == []
    for position in positions(len(whole)):
        path.write_bytes(flipped(whole, position))
        try:
            assert bad(verify_file(path, house.keyring.trusted)), position
        except VerificationFailed as error:
            assert str(path) in str(error)


def test_every_sampled_byte_of_a_large_evidence_file_counts(copies: Callable[[], House]) -> None:
    house = copies()
    path = house.blobs.path(LARGE.blake3)
    whole = path.read_bytes()
    for position in positions(len(whole)):
        path.write_bytes(flipped(whole, position))
        assert bad(house.verifier.verify_all()) == [("file artifact/large.bin", "content")]
    path.write_bytes(whole[:-1])
    assert bad(house.verifier.verify_all()) == [("file artifact/large.bin", "content")]
    path.write_bytes(whole)
    assert bad(house.verifier.verify_all()) == []


def test_every_byte_of_every_key_file_counts(copies: Callable[[], House]) -> None:
    house = copies()
    files = sorted((house.home / "keys").iterdir())
    assert [path.suffix for path in files].count(".pub") == 2
    for path in files:
        whole = path.read_bytes()
        for position in range(len(whole)):
            path.write_bytes(flipped(whole, position))
            if _harmless(path, whole, position):
                continue
            with pytest.raises(ActumError) as caught:
                Keyring.open(house.home)
            named = path.name in str(caught.value) or path.stem in str(caught.value)
            assert named or "keyid" in str(caught.value) or "key" in str(caught.value), position
        path.write_bytes(whole)
    assert Keyring.open(house.home).signer


def _harmless(path: Path, whole: bytes, position: int) -> bool:
    """White space around base64 and the last newline say nothing: the key is the same key."""
    if whole[position : position + 1] not in b"\n":
        return False
    try:
        Keyring.open(path.parent.parent)
    except ActumError:
        return False
    return True


def test_a_planted_public_key_makes_no_log_of_its_own_believed(
    copies: Callable[[], House], tmp_path: Path
) -> None:
    house = copies()
    stranger = Keyring.open(tmp_path / "stranger", create=True).signer
    (house.home / "keys" / f"{stranger.keyid}.pub").write_text(stranger.public.pem)
    for size, text in house.database.rows("SELECT size, note FROM checkpoints"):
        forged = note.sign(note.parse(text).checkpoint, [stranger])
        tamper(house, "UPDATE checkpoints SET note = ? WHERE size = ?", forged, size)
    found = bad(House.open(house.home).verifier.verify_all())
    assert any(check == "signer" for _, check in found)
    assert any(check == "key rotation" for _, check in found)


def test_what_was_added_by_hand_is_as_strange_as_what_was_taken(
    copies: Callable[[], House],
) -> None:
    house = copies()
    known = house.database.rows("SELECT execution_id, receipt_id FROM receipts")[0]
    tamper(
        house,
        "INSERT INTO evidence_records (evidence_id, execution_id, evidence_ref, document)"
        " VALUES ('planted', ?, 'r', '{}')",
        known[0],
    )
    tamper(
        house,
        "INSERT INTO trace_events SELECT max(seq) + 1, ?, 'planted', trace_id, attempt, event_type,"
        " ts, tool_id, runner_type, container_id, duration_ms, outcome, data FROM trace_events",
        known[0],
    )
    tamper(
        house,
        "INSERT INTO executions SELECT 'planted', identity_sha256, contract_sha256, trace_id,"
        " session, tool_id, state, outcome, result_json, receipt_id, started_at, ended_at, owner,"
        " opening, pending_seq FROM executions WHERE execution_id = ?",
        known[0],
    )
    found = bad(house.verifier.verify_all())
    assert ("evidence record planted", "receipt") in found
    assert (f"trace of {known[0]}", "receipt") in found
    assert ("execution planted", "recorded result") in found
