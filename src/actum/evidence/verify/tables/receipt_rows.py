"""`receipts`: each row's signature, its place, and the audit record that closed the execution.

The pass collects what receipts sign of other tables, for the passes over those tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.receipts import KeptReceipt
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.log_facts import CLOSING, digest_of
from actum.evidence.verify.log_findings import LogReading
from actum.evidence.verify.predicates import expected_closing
from actum.evidence.verify.receipt_findings import place_finding, signer_finding
from actum.evidence.verify.statements import signed_statement
from actum.evidence.verify.tables.execution_rows import Answers
from actum.store.keys import PublicKey
from actum.store.snapshot import Snapshot
from actum.value import field, value

_COLUMNS = ("receipt_id", "execution_id", "evidence_id", "final_seq", "envelope", "sha256")


@value
class SignedRecord:
    """The evidence record, as a receipt signs it."""

    place: int  #: of the receipt among all, in the order of the log
    final_seq: int  #: number of the audit record that names the receipt
    sha256: str
    execution_id: str
    subjects: tuple[tuple[str, str], ...]  #: files it names, and their SHA-256


@value
class SignedTrace:
    """The trace, as a receipt signs it."""

    place: int
    execution_id: str
    count: int
    sha256: str


@value(frozen=False, kw_only=False)
class Signed:
    """Facts of validly signed receipts about other tables. The passes over these consume them."""

    answers: Answers = field(default_factory=Answers)
    records: dict[str, SignedRecord] = field(default_factory=dict)  #: by evidence_id
    traces: dict[str, SignedTrace] = field(default_factory=dict)  #: by receipt_id; none if empty
    transactions: dict[str, str] = field(default_factory=dict)  #: SHA-256 of each record

    def add(self, statement: Mapping[str, Any], place: int, final_seq: int) -> None:
        predicate = statement["predicate"]
        execution, trace = predicate["execution_id"], predicate["trace"]
        records = (predicate.get("workspace") or {}).get("records", ())
        for attempt, sha256 in enumerate(records, 1):
            if sha256:
                self.transactions[f"{execution}-{attempt}"] = sha256
        self.answers.add(predicate)
        self.records[predicate["evidence"]["evidence_id"]] = SignedRecord(
            place=place,
            final_seq=final_seq,
            sha256=predicate["evidence"]["sha256"],
            execution_id=execution,
            subjects=tuple(
                (each["name"], each["digest"]["sha256"]) for each in statement["subject"][1:]
            ),
        )
        if trace["count"]:
            self.traces[predicate["receipt_id"]] = SignedTrace(
                place=place, execution_id=execution, count=trace["count"], sha256=trace["sha256"]
            )


def receipt_findings(
    database: Snapshot, reading: LogReading, trusted: Mapping[str, PublicKey], signed: Signed
) -> Iterator[Finding]:
    """Every receipt. Fills `signed`, and takes those closings from `reading` that have one."""
    before = 0
    for place, values in enumerate(database.scan("receipts", _COLUMNS)):
        subject, final_seq = f"receipt {values[0]}", values[3]
        found = _row_findings(values, database, reading, trusted, signed, place)
        yield from guarded(subject, "shape", found)
        if isinstance(final_seq, int):
            if final_seq <= before:
                detail = f"receipts.final_seq: its row comes behind that of audit record {before}"
                yield Finding(subject, "order", False, detail)
            before = max(before, final_seq)


def missing_receipts(reading: LogReading) -> Iterator[Finding]:
    """Audit records whose receipt no row holds. To be asked when all receipts were seen."""
    for seq, closing in reading.facts.closings.items():
        detail = f"{closing.table}: no row holds the receipt {closing.receipt_sha256} that it names"
        yield Finding(f"audit record {seq}", "receipt", False, detail)


def _row_findings(
    values: tuple[Any, ...],
    database: Snapshot,
    reading: LogReading,
    trusted: Mapping[str, PublicKey],
    signed: Signed,
    place: int,
) -> Iterator[Finding]:
    kept = _kept(values)
    subject, record = f"receipt {kept.receipt_id}", f"audit record {kept.final_seq}"
    digest = sha256_bytes(kept.encoded)
    differs = difference("receipts.sha256", digest, kept.sha256)
    yield judged(subject, "stored bytes", digest == kept.sha256, differs)
    closing = reading.facts.closings.get(kept.final_seq)
    if closing is None:
        detail = f"receipts.final_seq: {record}, which closed it, is gone or closes nothing"
        yield Finding(subject, "audit record", False, detail)
    elif closing.receipt_sha256 != kept.sha256:
        differs = difference("receipts.sha256", closing.receipt_sha256, kept.sha256)
        yield Finding(record, "receipt", False, differs)
    else:
        del reading.facts.closings[kept.final_seq]
    statement, found = signed_statement(kept.envelope, trusted, subject)
    yield from found
    if statement is None:
        return
    yield place_finding(statement["predicate"], kept)
    yield signer_finding(kept, reading.signer_at(kept.final_seq), trusted)
    signed.add(statement, place, kept.final_seq)
    if closing is not None:
        expected = expected_closing(statement["predicate"], kept.sha256)
        same = closing.digest == digest_of(expected)
        differing = () if same else _differing(expected, kept.final_seq, database)
        yield judged(record, "agrees with its receipt", same, "; ".join(differing))


def _differing(expected: Mapping[str, Json], seq: int, database: Snapshot) -> Iterator[str]:
    row = database.row("SELECT record FROM audit WHERE seq = ?", (seq,))
    audit = json.loads(row[0]) if row else {}
    for name in CLOSING:
        if audit.get(name) != expected[name]:
            yield difference(f"its {name}", audit.get(name), expected[name])


def _kept(values: tuple[Any, ...]) -> KeptReceipt:
    receipt_id, execution_id, evidence_id, final_seq, envelope, sha256 = values
    return KeptReceipt(
        receipt_id=receipt_id,
        execution_id=execution_id,
        evidence_id=evidence_id,
        final_seq=final_seq,
        encoded=envelope.encode("utf-8", "surrogatepass"),
        sha256=sha256,
    )
