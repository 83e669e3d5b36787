"""Receipts bind the whole execution, leak none of it, and are read by others' verifiers."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

import actum
from actum import native
from actum.capture.model import Denial, Stream
from actum.contract.canonical import sha256_bytes
from actum.errors import Refused
from actum.evidence.records.audit import closed
from actum.evidence.records.receipt import MAX_FILES
from actum.evidence.traces import Traces

from .factories import (
    ENFORCED,
    RESULT,
    STARTED,
    TRACE_ID,
    House,
    make_capture,
    make_contract,
    make_events,
    make_facts,
    make_file,
    make_intent,
    make_plan,
    make_policy,
    make_refusal,
    make_stream,
    tamper,
)

FILES = (make_file("out/report.json", b"{}"), make_file("log.txt", b"hello", kind="output_file"))


def statement_of(house: House, receipt_id: str) -> dict[str, Any]:
    envelope = house.receipts.find(receipt_id).envelope
    decoded: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return decoded


def test_the_statement_binds_the_whole_execution(house: House) -> None:
    capture = make_capture(
        collected=FILES,
        denials=(
            Denial(kind="fork", target="secret-name", time_ms=1),
            Denial(kind="syscall", target="kcmp", time_ms=1, count=3),
            Denial(kind="syscall_number", target="1701", time_ms=2),
        ),
    )
    facts = house.execute(capture=capture)
    statement = statement_of(house, facts.receipt_id)
    record = house.database.rows("SELECT document FROM evidence_records")[0][0].encode()
    assert facts.policy is not None
    assert facts.proof is not None
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "urn:actum:execution-receipt:v1"
    assert statement["subject"] == [
        {"name": "evidence-manifest", "digest": {"sha256": sha256_bytes(record)}},
        {"name": "artifact/out/report.json", "digest": {"sha256": FILES[0].sha256}},
        {"name": "output_file/log.txt", "digest": {"sha256": FILES[1].sha256}},
    ]
    predicate = statement["predicate"]
    assert predicate["environment"] == {
        "actum": actum.__version__,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "init_sha256": sha256_bytes(native.content(native.INIT)),
        "determinism_sha256": None,
    }
    assert predicate["enforcement"][1] == {
        "limit": "memory_mb",
        "requested": "512",
        "mechanism": "memory cgroup",
        "enforced": True,
        "peak": 7_340_032,
        "tripped": False,
    }
    expected = {
        "receipt_id": facts.receipt_id,
        "execution_id": facts.execution_id,
        "trace_id": TRACE_ID,
        "attempt": 1,
        "session": "ses-1",
        "parent_receipt": None,
        "requested_by": "agent:test",
        "purpose_sha256": sha256_bytes(b"look for a needle"),
        "contract": {"sha256": facts.contract_sha256, "identity_sha256": "e" * 64},
        "input_digest": "f" * 64,
        "output_digest": "9" * 64,
        "tool": {"id": "TL-003", "version": "14.1.0", "pin": "a" * 64},
        "adapter": {"id": "ADP-001", "version": "1.0.0", "status": "active", "sha256": "b" * 64},
        "executable": {"path": "/usr/bin/rg", "sha256": "d" * 64},
        "policy": {"sha256": facts.policy.sha256, "document": facts.policy.document()},
        "approvals": ["AG-01:pin"],
        "runner": "local",
        "outcome": "SUCCEEDED",
        "reason_codes": [],
        "ending": {"kind": "Exited", "exit_code": 0, "signal": None},
        "denials": {
            "count": 5,
            "kinds": ["fork", "syscall", "syscall_number"],
            "system_calls": {"kcmp": 3},
        },
        "artifacts_total": 2,
        "time": {
            "started": "2031-04-05T06:07:08.000Z",
            "finished": "2031-04-05T06:07:08.012Z",
            "duration_ms": 12,
        },
    }
    assert {name: predicate[name] for name in expected} == expected
    assert predicate["proof"]["sha256"] == facts.proof.sha256
    assert [check["code"] for check in predicate["proof"]["checks"]] == [
        "IV-01",
        "IV-02",
        "IV-03",
        "IV-04",
        "IV-05",
    ]
    assert predicate["artifacts"][0] == {
        "name": "report.json",
        "path": "out/report.json",
        "kind": "artifact",
        "type": "file",
        "size": 2,
        "sha256": FILES[0].sha256,
        "blake3": FILES[0].blake3,
    }
    assert predicate["streams"]["stdout"] == {
        "bytes": 9,
        "kept": 9,
        "sha256": sha256_bytes(b"found it\n"),
    }


def test_a_refusal_has_a_receipt_that_says_how_far_it_came(house: House) -> None:
    receipt = house.ledger.seal(make_refusal(), None)
    predicate = statement_of(house, receipt.receipt_id)["predicate"]
    assert predicate["tool"] == {"id": "TL-999", "version": None, "pin": None}
    empty = ("adapter", "policy", "proof", "executable", "runner", "ending", "streams")
    assert {name: predicate[name] for name in empty} == dict.fromkeys(empty)
    assert predicate["reason_codes"] == ["TOOL_UNKNOWN"]
    assert predicate["environment"]["init_sha256"] is None


def test_counts_beyond_what_json_readers_keep_are_strings(house: House) -> None:
    huge = Stream(kept=b"", total_bytes=2**53, sha256="0" * 64)
    rows = tuple(replace(ENFORCED[0], peak=peak) for peak in (None, 0, 2**53 - 1, 2**53))
    facts = house.execute(capture=make_capture(stdout=huge, enforcement=rows))
    predicate = statement_of(house, facts.receipt_id)["predicate"]
    assert predicate["streams"]["stdout"]["bytes"] == "9007199254740992"
    peaks = [row["peak"] for row in predicate["enforcement"]]
    assert peaks == [None, 0, 2**53 - 1, "9007199254740992"]


def test_many_files_are_bound_through_the_evidence_record(house: House) -> None:
    files = tuple(make_file(f"{number:03}.txt", b"%d" % number) for number in range(MAX_FILES + 6))
    facts = house.execute(capture=make_capture(collected=files))
    statement = statement_of(house, facts.receipt_id)
    assert len(statement["subject"]) == 1 + MAX_FILES
    assert statement["predicate"]["artifacts_total"] == MAX_FILES + 6
    tamper(house, "UPDATE blobs SET content = x'00' WHERE blake3 = ?", files[-1].blake3)
    bad = [f for f in house.verifier.verify_execution(facts.receipt_id) if not f.passed]
    assert [finding.subject for finding in bad] == ["file artifact/069.txt"]


def test_securesystemslib_accepts_a_receipt_and_refuses_a_changed_one(house: House) -> None:
    kept = house.receipts.find(house.execute(capture=make_capture(collected=FILES)).receipt_id)
    envelope = Envelope.from_dict(kept.envelope)
    keyid = house.keyring.signer.keyid
    raw = house.keyring.trusted[keyid].raw.hex()
    key = SSlibKey(keyid, "ed25519", "ed25519", {"public": raw})
    assert envelope.verify([key], 1)
    changed = Envelope.from_dict(kept.envelope)
    changed.payload = changed.payload.replace(b"SUCCEEDED", b"SUCCEEDEE")
    with pytest.raises(VerificationError):
        changed.verify([key], 1)


def test_in_toto_attestation_validates_the_statement(house: House) -> None:
    kept = house.receipts.find(house.execute(capture=make_capture(collected=FILES)).receipt_id)
    payload = base64.b64decode(kept.envelope["payload"])
    Statement.copy_from_pb(Parse(payload, statement_pb2.Statement())).validate()
    without_subject = {**json.loads(payload), "subject": []}
    with pytest.raises(ValueError, match="subject"):
        Statement.copy_from_pb(
            Parse(json.dumps(without_subject), statement_pb2.Statement())
        ).validate()


def test_an_exported_receipt_is_the_kept_one_to_the_byte(house: House) -> None:
    facts = house.execute()
    path = house.receipts.export(facts.receipt_id)
    assert path == house.home / "receipts" / f"{facts.receipt_id}.json"
    assert sha256_bytes(path.read_bytes()) == house.receipts.find(facts.receipt_id).sha256
    path.write_bytes(b"damaged")
    assert house.receipts.export(facts.receipt_id).read_bytes().startswith(b'{"payload"')
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["nothing", "../../etc/passwd", ""])
def test_a_receipt_that_is_not_there_is_refused_by_name(house: House, name: str) -> None:
    with pytest.raises(Refused) as caught:
        house.receipts.export(name)
    assert caught.value.code == "RECEIPT_UNKNOWN"


CANARY = "cAnArY-7f3a"


def test_no_byte_of_input_output_or_secret_is_in_audit_trace_or_receipt(house: House) -> None:
    """X-02: a marker given by every way in is found in none of the three."""
    contract = make_contract(
        execution_id="exec-1",
        metadata=replace(make_contract().metadata, purpose=f"because {CANARY}"),
    )
    policy = make_policy()
    plan = make_plan(
        contract,
        policy,
        argv=("rg", f"--{CANARY}", CANARY),
        environment={"LANG": CANARY},
        stdin=CANARY.encode(),
    )
    intent = make_intent(contract, policy=policy, plan=plan)
    opened = house.ledger.write_ahead(intent)
    capture = make_capture(
        stdout=make_stream(CANARY.encode()),
        stderr=make_stream(CANARY.encode() * 3),
        collected=(make_file("report.json", CANARY.encode()),),
        denials=(
            Denial(kind="egress", target=f"{CANARY}.example.test", time_ms=1),
            Denial(kind="syscall_number", target=CANARY, time_ms=1),
        ),
    )
    facts = make_facts(
        intent, opened=opened, capture=capture, events=make_events("exec-1", bytes=11)
    )
    house.ledger.seal(facts, RESULT)
    house.ledger.seal(make_refusal(make_contract(tool_id=f"rm -rf {CANARY}")), None)
    house.ledger.malformed(CANARY.encode(), STARTED)

    receipts = [base64.b64decode(kept.envelope["payload"]) for kept in house.receipts.latest(9)]
    public = [
        *house.audit(),
        *receipts,
        json.dumps(Traces(house.database).of_execution("exec-1")).encode(),
    ]
    assert len(public) == 6 + 2 + 1
    for document in public:
        assert CANARY.encode() not in document
        assert base64.b64encode(CANARY.encode())[:-4] not in document
    # The marker did get in: the evidence store, which may hold it, has it.
    (record,) = house.records.of_execution("exec-1")
    assert CANARY in json.dumps(record)


def test_an_audit_field_takes_an_identifier_or_a_digest_and_nothing_else() -> None:
    assert closed("TL-003") == "TL-003"
    assert closed(None) is None
    for text in ("two words", "a" * 129, "", "päth", "/etc/passwd", "a\n"):
        assert closed(text) == f"sha256:{sha256_bytes(text.encode())}"


def test_audit_records_have_exactly_the_closed_fields(house: House) -> None:
    house.execute()
    house.ledger.seal(make_refusal(), None)
    house.ledger.malformed(b"", STARTED)
    for record in house.audit():
        assert set(json.loads(record)) == {
            *("v", "kind", "ts", "execution_id", "trace_id", "attempt", "tool_id", "adapter_id"),
            *("versions", "decision", "status", "outcome", "reason_codes", "input_digest"),
            *("output_digest", "policy_sha256", "contract_sha256", "receipt_sha256"),
            *("opening_sha256", "duration_ms", "cached"),
        }
    final = json.loads(house.audit()[2])
    assert (final["status"], final["outcome"]) == ("SUCCESS", "SUCCEEDED")
    assert final["receipt_sha256"] == house.receipts.latest(2)[1].sha256
    assert final["duration_ms"] == 12
    assert json.loads(house.audit()[4])["status"] == "BLOCKED"
