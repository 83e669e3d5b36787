"""What the store says about a receipt whose signature holds, one finding per thing looked at.

The signed digests judge the evidence record, and the record judges the files. Nothing is repaired
and nothing is skipped in silence: what cannot be found is a finding too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.audit import Kind, closed, leaf_hash
from actum.evidence.encoding import encoded
from actum.evidence.receipts import KeptReceipt
from actum.evidence.traces import Traces
from actum.store.blobs import BlobStore
from actum.store.database import Database


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    subject: str  #: e.g. ``receipt 3f…``, ``evidence record 8a…``, ``file artifact/report.json``
    check: str  #: what about it
    passed: bool
    detail: str = ""  #: on failure: what differs


def judged(subject: str, check: str, passed: bool, otherwise: str) -> Finding:
    return Finding(subject, check, passed, "" if passed else otherwise)


def store_findings(
    statement: Mapping[str, Json], kept: KeptReceipt, database: Database, blobs: BlobStore
) -> Iterator[Finding]:
    """Everything the store holds about the receipt `kept`, measured by its signed statement."""
    predicate = statement["predicate"]
    yield from _audit_record(predicate, kept, database)
    yield from _evidence_record(predicate, statement["subject"], database, blobs)
    yield _trace(predicate, database)
    yield from _execution(predicate, database)


def audit_findings(database: Database) -> Iterator[Finding]:
    """The log itself: numbers without gaps, true leaves, and a receipt for each that names one."""
    kept = dict(database.rows("SELECT final_seq, sha256 FROM receipts"))
    expected = 1
    for seq, record, leaf in database.rows("SELECT seq, record, leaf_hash FROM audit ORDER BY seq"):
        subject = f"audit record {seq}"
        if seq != expected:
            yield Finding(subject, "order", False, f"records {expected} to {seq - 1} are missing")
        expected = seq + 1
        if leaf_hash(record) != leaf:
            yield Finding(subject, "leaf hash", False, "its bytes are not those that were logged")
            continue
        named = json.loads(record)["receipt_sha256"]
        if named != kept.pop(seq, None):
            yield Finding(subject, "receipt", False, f"the receipt {named} it names is not there")
    for seq in kept:
        yield Finding(f"audit record {seq}", "present", False, "a receipt rests on it; it is gone")
    yield Finding("audit log", "read to its end", True, f"{expected - 1} records")


def _audit_record(
    predicate: Mapping[str, Json], kept: KeptReceipt, database: Database
) -> Iterator[Finding]:
    subject = f"audit record {kept.final_seq}"
    row = database.row("SELECT record, leaf_hash FROM audit WHERE seq = ?", (kept.final_seq,))
    if row is None:
        yield Finding(subject, "present", False, "the FINAL record of the receipt is gone")
        return
    record, leaf = row
    if leaf_hash(record) != leaf:
        yield Finding(subject, "leaf hash", False, "its bytes are not those that were logged")
        return
    yield Finding(subject, "leaf hash", True)
    audit = json.loads(record)
    expected = {
        "kind": Kind.FINAL,
        "receipt_sha256": kept.sha256,
        "execution_id": closed(predicate["execution_id"]),
        "trace_id": closed(predicate["trace_id"]),
        "attempt": predicate["attempt"],
        "tool_id": closed(predicate["tool"]["id"]),
        "adapter_id": closed((predicate["adapter"] or {}).get("id")),
        "outcome": predicate["outcome"],
        "reason_codes": [closed(code) for code in predicate["reason_codes"]],
        "input_digest": predicate["input_digest"],
        "output_digest": predicate["output_digest"],
        "policy_sha256": (predicate["policy"] or {}).get("sha256"),
        "contract_sha256": predicate["contract"]["sha256"],
        "duration_ms": predicate["time"]["duration_ms"],
    }
    differing = sorted(name for name, value in expected.items() if audit.get(name) != value)
    yield judged(subject, "agrees with its receipt", not differing, f"other {', '.join(differing)}")


def _evidence_record(
    predicate: Mapping[str, Json],
    subjects: list[Mapping[str, Json]],
    database: Database,
    blobs: BlobStore,
) -> Iterator[Finding]:
    evidence = predicate["evidence"]
    subject = f"evidence record {evidence['evidence_id']}"
    row = database.row(
        "SELECT document FROM evidence_records WHERE evidence_id = ?", (evidence["evidence_id"],)
    )
    if row is None:
        yield Finding(subject, "present", False, "the receipt signs it; it is gone")
        return
    if sha256_bytes(row[0].encode()) != evidence["sha256"]:
        yield Finding(subject, "digest", False, "it is not the record that was signed")
        return
    yield Finding(subject, "digest", True)
    files = json.loads(row[0])["files"]
    listed = {f"{file['kind']}/{file['path']}": file["sha256"] for file in files}
    for entry in subjects[1:]:
        if listed.get(entry["name"]) != entry["digest"]["sha256"]:
            yield Finding(subject, "lists its files", False, f"{entry['name']} differs")
    for file in files:
        yield _file(file, blobs)


def _file(file: Mapping[str, Json], blobs: BlobStore) -> Finding:
    subject = f"file {file['kind']}/{file['path']}"
    try:
        content = blobs.read(file["blake3"])
    except (VerificationFailed, EvidenceUnavailable) as error:
        return Finding(subject, "content", False, error.message)
    same = sha256_bytes(content) == file["sha256"]
    return judged(subject, "content", same, "its SHA-256 is not the signed one")


def _trace(predicate: Mapping[str, Json], database: Database) -> Finding:
    events = Traces(database).of_receipt(predicate["execution_id"], predicate["receipt_id"])
    same = sha256_bytes(encoded(events)) == predicate["trace"]["sha256"]
    return judged(
        f"trace of {predicate['execution_id']}",
        "events",
        same,
        "they are not those that were signed",
    )


def _execution(predicate: Mapping[str, Json], database: Database) -> Iterator[Finding]:
    # Only the receipt that the row names can judge it: an id may have been refused before it ran.
    row = database.row(
        "SELECT outcome, result_json, contract_sha256, identity_sha256 FROM executions"
        " WHERE execution_id = ? AND receipt_id = ?",
        (predicate["execution_id"], predicate["receipt_id"]),
    )
    if row is None:
        return
    outcome, result, contract, identity = row
    found = {
        "outcome": outcome,
        "result": None if result is None else sha256_bytes(result.encode()),
        "contract_sha256": contract,
        "identity_sha256": identity,
    }
    signed = {
        "outcome": predicate["outcome"],
        "result": predicate["result_sha256"],
        "contract_sha256": predicate["contract"]["sha256"],
        "identity_sha256": predicate["contract"]["identity_sha256"],
    }
    differing = sorted(name for name, value in signed.items() if found[name] != value)
    yield judged(
        f"execution {predicate['execution_id']}",
        "recorded result",
        not differing,
        f"other {', '.join(differing)}",
    )
