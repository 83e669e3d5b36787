"""A proof that one record is in the log, for a reader without the log.

The bundle holds the record itself, its place, the path of hashes from it to the root, and a signed
checkpoint with that root. `check_proof` needs nothing else but the log's public key.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping

from actum.contract.model import Json
from actum.errors import Refused, VerificationFailed
from actum.evidence.log import node_reader
from actum.evidence.verify.findings import Finding, judged
from actum.store import note
from actum.store.database import Database
from actum.store.keys import PublicKey
from actum.store.merkle import included, inclusion_proof, leaf_hash

FORMAT = "urn:actum:inclusion-proof:v1"
_FIELDS = frozenset({"format", "seq", "record", "proof", "checkpoint"})


def prove(database: Database, seq: int) -> dict[str, Json]:
    """The bundle for record `seq`, under the newest checkpoint."""
    record = database.row("SELECT record FROM audit WHERE seq = ?", (seq,))
    newest = database.row("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
    if record is None or newest is None:
        raise Refused(
            "RECORD_UNKNOWN",
            f"seq: there is no audit record {seq} in this home.",
            remedy="`actum audit checkpoint` says how many there are.",
        )
    return _bundle(database, seq, record[0], newest[0])


def prove_under(database: Database, seq: int, checkpoint: str) -> dict[str, Json]:
    """The bundle for record `seq`, which exists, under one checkpoint of this log."""
    (record,) = database.rows("SELECT record FROM audit WHERE seq = ?", (seq,))
    return _bundle(database, seq, record[0], checkpoint)


def _bundle(database: Database, seq: int, record: bytes, checkpoint: str) -> dict[str, Json]:
    path = inclusion_proof(seq - 1, note.parse(checkpoint).checkpoint.size, node_reader(database))
    return {
        "format": FORMAT,
        "seq": seq,
        "record": record.decode(),
        "proof": [base64.b64encode(each).decode() for each in path],
        "checkpoint": checkpoint,
    }


def find_record(database: Database, wanted: str) -> int:
    """The number of a record: given, or that which closes an execution or names a receipt."""
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 19:
        return int(wanted)
    row = database.row(
        "SELECT final_seq FROM receipts WHERE receipt_id = ? OR execution_id = ?"
        " ORDER BY final_seq DESC LIMIT 1",
        (wanted, wanted),
    )
    if row is None:
        raise Refused(
            "RECORD_UNKNOWN",
            f"Nothing in this home has the id {wanted[:80]!r}.",
            remedy="Give the number of an audit record, or an id from `actum receipts list`.",
        )
    return int(row[0])


def is_proof(document: Mapping[str, Json]) -> bool:
    return document.get("format") == FORMAT


def check_proof(bundle: Mapping[str, Json], trusted: Mapping[str, PublicKey]) -> Iterator[Finding]:
    """Check a bundle on its own, with the public keys that the reader trusts."""
    if set(bundle) != _FIELDS or not isinstance(bundle["seq"], int):
        yield Finding("inclusion proof", "shape", False, "it has other fields than a proof")
        return
    subject = f"audit record {bundle['seq']}"
    try:
        found = note.parse(str(bundle["checkpoint"]))
        note.verify(found, trusted.values())
        path = [_hash(each) for each in bundle["proof"]]
        record = str(bundle["record"]).encode()
        json.loads(record)
    except VerificationFailed as error:
        yield Finding(subject, "checkpoint", False, error.message)
        return
    except (binascii.Error, ValueError, TypeError) as error:
        yield Finding(subject, "shape", False, str(error))
        return
    checkpoint = found.checkpoint
    yield Finding(subject, "checkpoint", True, f"{checkpoint.size} records of {checkpoint.origin}")
    leads = included(leaf_hash(record), bundle["seq"] - 1, checkpoint.size, path, checkpoint.root)
    yield judged(subject, "inclusion", leads, "the log that was signed does not hold this record")


def _hash(text: Json) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("a hash of the path is not in base64's canonical form")
    return raw
