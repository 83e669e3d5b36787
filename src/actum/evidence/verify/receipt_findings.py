"""Compares a receipt with a valid signature with the store, one finding per check.

The signed digests verify the evidence record, and the record verifies the files. Nothing is
repaired and nothing is skipped in silence: a missing part is a finding too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, Refused, VerificationFailed
from actum.evidence.log import node_reader
from actum.evidence.receipts import KeptReceipt
from actum.evidence.records.encoding import encoded
from actum.evidence.traces import Traces
from actum.evidence.verify.findings import Finding, difference, judged
from actum.evidence.verify.predicates import expected_closing
from actum.store import dsse, note
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.keys import PublicKey
from actum.store.merkle import included, inclusion_proof, leaf_hash
from actum.store.removed import CONTENTS, removal_of


def store_findings(
    statement: Mapping[str, Json],
    kept: KeptReceipt,
    database: Database,
    blobs: BlobStore,
    trusted: Mapping[str, PublicKey],
) -> Iterator[Finding]:
    """Compares everything that the store holds about the receipt `kept` with its statement."""
    predicate = statement["predicate"]
    yield place_finding(predicate, kept)
    yield from _audit_record(predicate, kept, database)

    def removed_at(blake3: str) -> str | None:
        """When a file was removed after this receipt, as a record of the signed log says."""
        found = removal_of(database, CONTENTS, blake3)
        if found is None or found.seq < kept.final_seq:
            return None
        return found.at if _logged(found.seq, database, trusted)[0].passed else None

    yield from _evidence_record(predicate, statement["subject"], database, blobs, removed_at)
    yield _trace(predicate, database)


def place_finding(predicate: Mapping[str, Json], kept: KeptReceipt) -> Finding:
    signed = {
        "receipt_id": predicate["receipt_id"],
        "execution_id": predicate["execution_id"],
        "evidence_id": predicate["evidence"]["evidence_id"],
    }
    differing = [
        difference(f"receipts.{name}", value, getattr(kept, name))
        for name, value in signed.items()
        if getattr(kept, name) != value
    ]
    subject = f"receipt {predicate['receipt_id']}"
    return judged(subject, "place", not differing, "; ".join(differing))


def place_findings(
    kept: KeptReceipt, database: Database, trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    """That one receipt's record is in the log under a signed checkpoint, without reading it all."""
    logged, signed_by = _logged(kept.final_seq, database, trusted)
    yield logged
    if signed_by is not None:
        yield signer_finding(kept, signed_by, trusted)


def _logged(
    seq: int, database: Database, trusted: Mapping[str, PublicKey]
) -> tuple[Finding, str | None]:
    """That one record is in the log under a signed checkpoint; and the key that signed that."""
    subject = f"audit record {seq}"
    row = database.row("SELECT note FROM checkpoints WHERE size >= ? ORDER BY size LIMIT 1", (seq,))
    leaf = database.row("SELECT record FROM audit WHERE seq = ?", (seq,))
    if row is None or leaf is None:
        return Finding(subject, "checkpoint", False, "no signed checkpoint covers it"), None
    try:
        found = note.parse(row[0])
        signed_by = note.verify(found, trusted.values())
        checkpoint, read = found.checkpoint, node_reader(database)
        path = inclusion_proof(seq - 1, checkpoint.size, read)
    except VerificationFailed as error:
        return Finding(subject, "checkpoint", False, error.message), None
    leads = included(leaf_hash(leaf[0]), seq - 1, checkpoint.size, path, checkpoint.root)
    differs = f"it is not the record that checkpoint {checkpoint.size} was signed over"
    return judged(subject, "checkpoint", leads, differs), signed_by[0]


def signer_finding(
    kept: KeptReceipt, in_turn: str | None, trusted: Mapping[str, PublicKey]
) -> Finding:
    """A key that was retired by then may not have signed the receipt."""
    found = dsse.signers(kept.envelope, trusted)
    return judged(
        f"receipt {kept.receipt_id}",
        "signer",
        found == [in_turn],
        f"signed by {', '.join(found)}; the key at audit record {kept.final_seq} was {in_turn}",
    )


def _audit_record(
    predicate: Mapping[str, Json], kept: KeptReceipt, database: Database
) -> Iterator[Finding]:
    subject = f"audit record {kept.final_seq}"
    row = database.row("SELECT record, nodes FROM audit WHERE seq = ?", (kept.final_seq,))
    if row is None:
        gone = f"{subject}, which closed it, is gone"
        yield Finding(f"receipt {kept.receipt_id}", "audit record", False, gone)
        return
    record, nodes = row
    leaf = leaf_hash(record)
    if nodes[: len(leaf)] != leaf:
        yield Finding(subject, "leaf hash", False, "its bytes are not those that were logged")
        return
    yield Finding(subject, "leaf hash", True)
    audit = json.loads(record)
    expected = expected_closing(predicate, kept.sha256)
    differing = sorted(name for name, value in expected.items() if audit.get(name) != value)
    yield judged(subject, "agrees with its receipt", not differing, f"other {', '.join(differing)}")


def _evidence_record(
    predicate: Mapping[str, Json],
    subjects: list[Mapping[str, Json]],
    database: Database,
    blobs: BlobStore,
    removed_at: Callable[[str], str | None],
) -> Iterator[Finding]:
    evidence = predicate["evidence"]
    subject = f"evidence record {evidence['evidence_id']}"
    row = database.row(
        "SELECT document, execution_id, evidence_ref FROM evidence_records WHERE evidence_id = ?",
        (evidence["evidence_id"],),
    )
    if row is None:
        yield Finding(subject, "present", False, "the receipt signs it; it is gone")
        return
    if sha256_bytes(row[0].encode()) != evidence["sha256"]:
        yield Finding(subject, "digest", False, "it is not the record that was signed")
        return
    yield Finding(subject, "digest", True)
    document = json.loads(row[0])
    place = (document["execution_id"], document["evidence_ref"])
    yield judged(subject, "place", row[1:] == place, f"it is stored under {', '.join(row[1:])}")
    files = document["files"]
    listed = {f"{file['kind']}/{file['path']}": file["sha256"] for file in files}
    for entry in subjects[1:]:
        if listed.get(entry["name"]) != entry["digest"]["sha256"]:
            yield Finding(subject, "lists its files", False, f"{entry['name']} differs")
    for file in files:
        yield _file(file, blobs, removed_at)


def _file(
    file: Mapping[str, Json], blobs: BlobStore, removed_at: Callable[[str], str | None]
) -> Finding:
    subject = f"file {file['kind']}/{file['path']}"
    try:
        content = blobs.read(file["blake3"])
    except Refused as removed:
        at = removed_at(file["blake3"])
        detail = removed.message if at is None else f"removed by gc on {at}"
        return Finding(subject, "content", at is not None, detail)
    except (VerificationFailed, EvidenceUnavailable) as error:
        return Finding(subject, "content", False, error.message)
    same = sha256_bytes(content) == file["sha256"]
    return judged(subject, "content", same, "its SHA-256 is not the signed one")


def _trace(predicate: Mapping[str, Json], database: Database) -> Finding:
    try:
        events = Traces(database).of_receipt(predicate["execution_id"], predicate["receipt_id"])
        same = sha256_bytes(encoded(events)) == predicate["trace"]["sha256"]
    except ValueError:
        same = False  # data that is no JSON any more
    return judged(
        f"trace of {predicate['execution_id']}",
        "events",
        same,
        "they are not those that were signed",
    )
