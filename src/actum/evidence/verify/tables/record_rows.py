"""`evidence_records`: each is the record that a receipt signs, stored under its own ids.

The pass collects the files that records list, for `blob_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.tables.blob_rows import Listed, ListedFile
from actum.evidence.verify.tables.receipt_rows import Signed, SignedRecord
from actum.store.snapshot import Snapshot

_COLUMNS = ("evidence_id", "execution_id", "evidence_ref", "document")


def record_findings(database: Snapshot, signed: Signed, listed: Listed) -> Iterator[Finding]:
    """Every evidence record, and that none is missing. Fills `listed`."""
    for finding in _record_findings(database, signed, listed):
        listed.complete = listed.complete and finding.passed
        yield finding


def _record_findings(database: Snapshot, signed: Signed, listed: Listed) -> Iterator[Finding]:
    before = -1
    for values in database.scan("evidence_records", _COLUMNS):
        subject = f"evidence record {values[0]}"
        expected = signed.records.pop(values[0], None)
        if expected is None:
            detail = "evidence_records.evidence_id: no receipt signs it"
            yield Finding(subject, "receipt", False, detail)
            continue
        yield from guarded(subject, "shape", _row_findings(values, expected, listed))
        if expected.place < before:
            detail = "evidence_records: its row comes behind that of a later execution"
            yield Finding(subject, "order", False, detail)
        before = max(before, expected.place)
    for evidence_id, left in signed.records.items():
        detail = f"evidence_records: its row is gone; the receipt of {left.execution_id} signs it"
        yield Finding(f"evidence record {evidence_id}", "present", False, detail)


def _row_findings(
    values: tuple[Any, ...], expected: SignedRecord, listed: Listed
) -> Iterator[Finding]:
    evidence_id, execution_id, evidence_ref, text = values
    subject = f"evidence record {evidence_id}"
    digest = sha256_bytes(text.encode("utf-8", "surrogatepass"))
    differs = difference("SHA-256 of evidence_records.document", expected.sha256, digest)
    yield judged(subject, "digest", digest == expected.sha256, differs)
    if digest != expected.sha256:
        return
    document = json.loads(text)
    places = {
        "execution_id": (document["execution_id"], execution_id),
        "evidence_ref": (document["evidence_ref"], evidence_ref),
    }
    wrong = [
        difference(f"evidence_records.{name}", wanted, found)
        for name, (wanted, found) in places.items()
        if wanted != found
    ]
    yield judged(subject, "place", not wrong, "; ".join(wrong))
    names = {f"{file['kind']}/{file['path']}": file["sha256"] for file in document["files"]}
    for name, sha256 in expected.subjects:
        if names.get(name) != sha256:
            differs = difference(f"file {name}", sha256, names.get(name))
            yield Finding(subject, "lists its files", False, differs)
    for file in document["files"]:
        name = f"{file['kind']}/{file['path']}"
        listed.files.setdefault(file["blake3"], ListedFile(name, file["sha256"], evidence_id))
        newest = max(listed.newest.get(file["blake3"], 0), expected.final_seq)
        listed.newest[file["blake3"]] = newest
