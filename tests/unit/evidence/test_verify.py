"""Whatever is changed is found, and the finding names it."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum.errors import VerificationFailed
from actum.evidence.ledger import Ledger
from actum.evidence.records.encoding import encoded
from actum.evidence.records.receipt import PAYLOAD_TYPE, Receipt
from actum.evidence.verify.receipt_verifier import verify_file, verify_receipt
from actum.store import dsse
from actum.store.blobs import SMALL_BYTES
from actum.store.keys import Keyring

from .factories import (
    House,
    bad,
    make_capture,
    make_facts,
    make_file,
    make_intent,
    make_refusal,
    tamper,
)

FILES = (make_file("report.json", b'{"ok":true}'), make_file("log.txt", b"hello", "output_file"))


@pytest.fixture
def sealed(house: House) -> Any:
    return house.execute(capture=make_capture(collected=FILES))


def check(house: House, envelope: dict[str, Any]) -> list[tuple[str, str]]:
    return bad(verify_receipt(envelope, house.keyring.trusted, house.database, house.blobs))


def test_an_untouched_home_verifies_and_says_what_was_looked_at(house: House, sealed: Any) -> None:
    house.ledger.seal(make_refusal(), None)
    findings = house.verifier.verify_all()
    assert bad(findings) == []
    subjects = {finding.subject for finding in findings}
    assert {
        f"receipt {sealed.receipt_id}",
        f"evidence record {sealed.evidence_id}",
        "file artifact/report.json",
        "file output_file/log.txt",
        f"trace of {sealed.execution_id}",
        f"execution {sealed.execution_id}",
        "audit record 3",
        "audit log",
    } <= subjects


def test_every_byte_of_signature_and_payload_counts(house: House, sealed: Any) -> None:
    kept = house.receipts.find(sealed.receipt_id)
    payload = base64.b64decode(kept.envelope["payload"])
    positions = sorted({*range(0, len(payload), 61), 0, len(payload) - 1})
    for position in positions:
        changed = bytearray(payload)
        changed[position] ^= 1
        envelope = {**kept.envelope, "payload": base64.b64encode(changed).decode()}
        found = check(house, envelope)
        assert [what for _, what in found] == ["signature"], position
        assert found[0][0].startswith("receipt "), position
    (signature,) = kept.envelope["signatures"]
    raw = base64.b64decode(signature["sig"])
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1
        forged = {**signature, "sig": base64.b64encode(changed).decode()}
        found = check(house, {**kept.envelope, "signatures": [forged]})
        assert found == [(f"receipt {sealed.receipt_id}", "signature")], position


def test_every_byte_of_an_exported_file_counts(house: House, sealed: Any, tmp_path: Path) -> None:
    content = house.receipts.export(sealed.receipt_id).read_bytes()
    copy = tmp_path / "copy.json"
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 1
        copy.write_bytes(changed)
        try:
            found = bad(verify_file(copy, house.keyring.trusted))
        except VerificationFailed as error:
            assert str(copy) in str(error)
        else:
            assert found, position


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def edited(statement: Any, path: tuple[Any, ...]) -> Any:
    copy = json.loads(json.dumps(statement))
    parent = copy
    for step in path[:-1]:
        parent = parent[step]
    before = parent[path[-1]]
    parent[path[-1]] = "edited" if not isinstance(before, int) else before + 1
    return copy


def test_every_field_of_the_statement_is_under_the_signature(house: House, sealed: Any) -> None:
    kept = house.receipts.find(sealed.receipt_id)
    statement = json.loads(base64.b64decode(kept.envelope["payload"]))
    paths = list(leaves(statement))
    assert {path[1] for path in paths if path[0] == "predicate"} == set(statement["predicate"])
    for path in paths:
        payload = json.dumps(edited(statement, path)).encode()
        envelope = {**kept.envelope, "payload": base64.b64encode(payload).decode()}
        assert [what for _, what in check(house, envelope)] == ["signature"], path
        tampered = json.dumps(envelope).encode()
        # The same in place, in the database: the stored digest notices it as well.
        connection = house.database._connection
        connection.execute("DROP TRIGGER IF EXISTS receipts_are_never_changed")
        connection.execute("UPDATE receipts SET envelope = ?", (tampered.decode(),))
        found = bad(house.verifier.verify_execution(sealed.receipt_id))
        assert found == [
            (f"receipt {sealed.receipt_id}", "stored bytes"),
            (f"receipt {sealed.receipt_id}", "signature"),
        ], path


def test_a_receipt_by_a_stranger_is_not_believed(house: House, sealed: Any, tmp_path: Path) -> None:
    kept = house.receipts.find(sealed.receipt_id)
    statement = json.loads(base64.b64decode(kept.envelope["payload"]))
    stranger = Keyring.open(tmp_path / "stranger", create=True)
    forged = Receipt(sealed.receipt_id, encoded(statement), stranger.signer)
    assert check(house, dict(forged.envelope)) == [(f"receipt {sealed.receipt_id}", "signature")]


def test_a_trusted_key_cannot_pass_one_document_off_as_another(house: House, sealed: Any) -> None:
    kept = house.receipts.find(sealed.receipt_id)
    statement = json.loads(base64.b64decode(kept.envelope["payload"]))
    signer = house.keyring.signer
    for changed in (
        {**statement, "predicateType": "urn:actum:work-receipt:v1"},
        {**statement, "_type": "https://example.test/Other/v1"},
        {**statement, "predicate": {"receipt_id": sealed.receipt_id}},
        {**statement, "predicate": "text"},
        {**statement, "subject": []},
        {**statement, "subject": statement["subject"][1:]},
        ["not", "a", "statement"],
    ):
        envelope = dsse.sign(json.dumps(changed).encode(), PAYLOAD_TYPE, signer)
        assert [what for _, what in check(house, envelope)] == ["shape"], changed
    not_json = dsse.sign(b"\xff", PAYLOAD_TYPE, signer)
    assert [what for _, what in check(house, not_json)] == ["shape"]


def test_a_receipt_signed_again_with_our_key_is_not_the_one_that_was_logged(
    house: House, sealed: Any
) -> None:
    kept = house.receipts.find(sealed.receipt_id)
    statement = json.loads(base64.b64decode(kept.envelope["payload"]))
    statement["predicate"]["outcome"] = "TOOL_ERROR"
    forged = Receipt(sealed.receipt_id, encoded(statement), house.keyring.signer)
    assert (f"receipt {sealed.receipt_id}", "known here") in check(house, dict(forged.envelope))
    tamper(
        house,
        "UPDATE receipts SET envelope = ?, sha256 = ?",
        forged.encoded.decode(),
        forged.sha256,
    )
    found = bad(house.verifier.verify_all())
    assert ("audit record 3", "receipt") in found
    assert ("audit record 3", "agrees with its receipt") in found


@pytest.mark.parametrize("position", [0, 5, -1])
def test_a_changed_artifact_is_named(house: House, sealed: Any, position: int) -> None:
    content = bytearray(FILES[0].content)
    content[position] ^= 1
    tamper(house, "UPDATE blobs SET content = ? WHERE blake3 = ?", bytes(content), FILES[0].blake3)
    findings = house.verifier.verify_execution(sealed.receipt_id)
    assert bad(findings) == [("file artifact/report.json", "content")]
    (finding,) = [finding for finding in findings if not finding.passed]
    assert FILES[0].blake3 in finding.detail


def test_a_missing_artifact_is_named(house: House, sealed: Any) -> None:
    tamper(house, "DELETE FROM blobs WHERE blake3 = ?", FILES[1].blake3)
    found = bad(house.verifier.verify_all())
    assert found == [("file output_file/log.txt", "content")]


@pytest.mark.parametrize("position", [0, 5, -1])
def test_a_changed_or_missing_large_artifact_is_named_with_its_path(
    house: House, position: int
) -> None:
    large = make_file("large.bin", b"x" * (SMALL_BYTES + 1))
    sealed = house.execute(capture=make_capture(collected=(large,)))
    path = house.blobs.path(large.blake3)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    findings = house.verifier.verify_execution(sealed.receipt_id)
    assert bad(findings) == [("file artifact/large.bin", "content")]
    (finding,) = [finding for finding in findings if not finding.passed]
    assert str(path) in finding.detail
    path.unlink()
    assert bad(house.verifier.verify_all()) == [("file artifact/large.bin", "content")]


def test_every_byte_of_the_evidence_record_counts(house: House, sealed: Any) -> None:
    (document,) = house.database.rows("SELECT document FROM evidence_records")[0]
    for position in range(0, len(document), 53):
        changed = document[:position] + chr(ord(document[position]) ^ 1) + document[position + 1 :]
        tamper(house, "UPDATE evidence_records SET document = ?", changed)
        assert bad(house.verifier.verify_execution(sealed.receipt_id)) == [
            (f"evidence record {sealed.evidence_id}", "digest")
        ], position
    tamper(house, "DELETE FROM evidence_records")
    assert bad(house.verifier.verify_all()) == [
        (f"evidence record {sealed.evidence_id}", "present")
    ]


def test_every_byte_of_an_audit_record_counts(house: House, sealed: Any) -> None:
    for seq, record in house.database.rows("SELECT seq, record FROM audit"):
        for position in range(0, len(record), 41):
            changed = bytearray(record)
            changed[position] ^= 1
            tamper(house, "UPDATE audit SET record = ? WHERE seq = ?", bytes(changed), seq)
            assert (f"audit record {seq}", "leaf hash") in bad(house.verifier.verify_all())
        tamper(house, "UPDATE audit SET record = ? WHERE seq = ?", record, seq)
    assert bad(house.verifier.verify_all()) == []


def test_a_removed_audit_record_or_receipt_is_named(house: House, sealed: Any) -> None:
    house.execute()
    tamper(house, "DELETE FROM audit WHERE seq = 2")
    found = house.verifier.verify_all()
    assert bad(found)[0] == ("audit record 3", "order")
    assert "record 2 is due" in found[[each.passed for each in found].index(False)].detail
    tamper(house, "DELETE FROM receipts WHERE receipt_id = ?", sealed.receipt_id)
    assert ("audit record 3", "receipt") in bad(house.verifier.verify_all())


def test_a_receipt_whose_audit_record_is_cut_off_is_named(house: House, sealed: Any) -> None:
    tamper(house, "DELETE FROM audit WHERE seq = 3")
    assert bad(house.verifier.verify_all()) == [
        ("audit records 3 to 3", "present"),
        (f"receipt {sealed.receipt_id}", "audit record"),
        (f"execution {sealed.execution_id}", "recorded start"),
    ]


@pytest.mark.parametrize(
    ("statement", "subject", "what"),
    [
        ("UPDATE trace_events SET duration_ms = 5 WHERE attempt = 1", "trace of", "events"),
        ("DELETE FROM trace_events WHERE event_type = 'tool_run_end'", "trace of", "events"),
        ("UPDATE executions SET outcome = 'TOOL_ERROR'", "execution", "recorded result"),
        ("UPDATE executions SET result_json = '{}'", "execution", "recorded result"),
        ("UPDATE executions SET identity_sha256 = 'x'", "execution", "recorded result"),
    ],
)
def test_a_changed_trace_or_recorded_result_is_named(
    house: House, sealed: Any, statement: str, subject: str, what: str
) -> None:
    tamper(house, statement)
    assert bad(house.verifier.verify_execution(sealed.receipt_id)) == [
        (f"{subject} {sealed.execution_id}", what)
    ]


def test_a_receipt_of_another_home_is_good_but_not_known(
    house: House, sealed: Any, tmp_path: Path
) -> None:
    other = House.open(tmp_path / "other" / ".actum")
    ours = Ledger(
        database=other.database, blobs=other.blobs, signer=house.keyring.signer, redact=bytes
    )
    intent = make_intent()
    opened = ours.write_ahead(intent)
    receipt = ours.seal(make_facts(intent, opened=opened), None)
    assert check(house, dict(receipt.envelope)) == [(f"receipt {receipt.receipt_id}", "known here")]
    other.database.close()


def test_an_exported_file_alone_is_checked_and_says_what_is_left_open(
    house: House, sealed: Any
) -> None:
    path = house.receipts.export(sealed.receipt_id)
    findings = verify_file(path, house.keyring.trusted)
    assert [(finding.check, finding.passed) for finding in findings] == [
        ("signature", True),
        ("shape", True),
        ("alone", True),
    ]
    for open_question in ("evidence record", "files", "trace", "audit log"):
        assert open_question in findings[-1].detail


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 200_000, b"\xff"])
def test_a_file_that_is_no_receipt_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(VerificationFailed, match=r"receipt\.json"):
        verify_file(path, {})
    with pytest.raises(VerificationFailed, match=r"absent\.json"):
        verify_file(tmp_path / "absent.json", {})


def test_verifying_twice_as_much_is_twice_the_work(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in instructions of the database engine, which no other load can change."""
    steps = 0
    connect = sqlite3.connect

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def counted(*words: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*words, **options)
        connection.set_progress_handler(count, 100)
        return connection

    def work() -> int:
        nonlocal steps
        steps = 0
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", counted)
            assert bad(house.verifier.verify_all()) == []
        return steps

    for _ in range(60):
        house.execute()
    single = work()
    assert single > 0
    for _ in range(60):
        house.execute()
    assert work() < 2.3 * single
