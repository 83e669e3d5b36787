"""Verifies receipts, and names every difference.

The signature comes first: what it does not cover is read only to name the bad receipt. All
findings are returned, passed and failed, so that a reader sees what was checked. Without a
checkpoint stored elsewhere, records cut off the end of the log cannot be noticed here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.receipts import KeptReceipt, Receipts
from actum.evidence.verify.decision_findings import decision_findings
from actum.evidence.verify.findings import Finding, judged
from actum.evidence.verify.home import verify_home
from actum.evidence.verify.log_findings import checkpoint_findings, read_log, size_of
from actum.evidence.verify.receipt_findings import place_findings, store_findings
from actum.evidence.verify.statements import name_of, signed_statement
from actum.evidence.verify.tables.execution_rows import one_execution
from actum.evidence.verify.unwritten import reading
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.journal import JournalChanged
from actum.store.keys import Keyring, PublicKey

Trusted = Mapping[str, PublicKey]


def verify_receipt(
    envelope: Mapping[str, Json], trusted: Trusted, database: Database, blobs: BlobStore
) -> tuple[Finding, ...]:
    """Check a receipt against its signer and against all that the store holds about it."""
    subject = _claimed_name(envelope)
    return tuple(_receipt_findings(envelope, trusted, database, blobs, subject))


def verify_file(path: Path, trusted: Trusted) -> tuple[Finding, ...]:
    """Check an exported receipt on its own. The last finding names what that leaves unproven."""
    statement, findings = signed_statement(read_receipt_file(path), trusted, f"receipt {path}")
    if statement is None:
        return findings
    open_questions = "not checked without its home: evidence record, files, trace, audit log"
    named = name_of(statement)
    decided = decision_findings(named, statement["predicate"], None)
    return (*findings, *decided, Finding(named, "alone", True, open_questions))


def read_receipt_file(path: Path) -> dict[str, Json]:
    """The envelope in a file; raises `VerificationFailed` naming the file."""
    try:
        envelope = json.loads(path.read_bytes())
    except OSError as error:
        raise VerificationFailed(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise VerificationFailed(f"{path} is not JSON, so it is no receipt.") from error
    if not isinstance(envelope, dict):
        raise VerificationFailed(f"{path} is not a JSON object, so it is no receipt.")
    return envelope


class Verifier:
    """Checks what one home holds."""

    def __init__(
        self, *, database: Database, blobs: BlobStore, receipts: Receipts, trusted: Trusted
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._receipts = receipts
        self._trusted = trusted

    def verify_execution(self, receipt_id: str) -> tuple[Finding, ...]:
        """One stored receipt, the records it signs, and its place in the log."""
        kept = self._receipts.find(receipt_id)
        statement, findings = self._kept_findings(kept)
        if statement is None:
            return tuple(findings)
        return (
            *findings,
            *place_findings(kept, self._database, self._trusted),
            *one_execution(statement["predicate"], self._database),
        )

    def verify_all(self, checkpoint: tuple[str, str] | None = None) -> tuple[Finding, ...]:
        """Everything in this home. `checkpoint` is one stored elsewhere: its text and its name."""
        home, missed = self._database.path.parent, self._missed()
        found = verify_home(home, Keyring.open(home).signer, self._trusted, checkpoint)
        return (missed, *(each for each in found if each.subject != "journal")) if missed else found

    def _missed(self) -> Finding | None:
        """Frames of the journal that this process has read and that are missing now."""
        try:
            self._database.row("SELECT 1")  # an open store writes its journal out before it reads
        except JournalChanged as error:
            return Finding("journal", "frames", False, error.message)
        except EvidenceUnavailable:
            pass  # the passes over the tables report it
        return None

    def verify_log(self, checkpoint: tuple[str, str]) -> tuple[Finding, ...]:
        """The audit log alone, compared with a checkpoint stored elsewhere."""
        home = self._database.path.parent
        with reading(home, Keyring.open(home).signer) as (found, journal):
            log = read_log(found, self._trusted, size_of(checkpoint[0]))
        kept = checkpoint_findings(checkpoint[0], log, self._trusted, checkpoint[1])
        return (*(() if journal.passed else (journal,)), *log.findings, *kept)

    def _kept_findings(self, kept: KeptReceipt) -> tuple[dict[str, Json] | None, list[Finding]]:
        subject = f"receipt {kept.receipt_id}"
        intact = sha256_bytes(kept.encoded) == kept.sha256
        stored = judged(subject, "stored bytes", intact, "they are not those that were stored")
        try:
            envelope = kept.envelope
        except ValueError:
            return None, [stored, Finding(subject, "shape", False, "it is not JSON")]
        statement, signed = signed_statement(envelope, self._trusted, subject)
        findings = [stored, *signed]
        if statement is not None:
            findings += store_findings(statement, kept, self._database, self._blobs, self._trusted)
            findings += decision_findings(subject, statement["predicate"], self._database)
        return statement, findings


def _receipt_findings(
    envelope: Mapping[str, Json],
    trusted: Trusted,
    database: Database,
    blobs: BlobStore,
    subject: str,
) -> Iterator[Finding]:
    statement, findings = signed_statement(envelope, trusted, subject)
    yield from findings
    if statement is None:
        return
    named = name_of(statement)
    kept = Receipts(database, blobs.root.parent).get(statement["predicate"]["receipt_id"])
    if kept is None:
        yield Finding(named, "known here", False, "this home has no such receipt")
        return
    yield judged(named, "known here", _same(envelope, kept), "the copy kept here is another one")
    yield from store_findings(statement, kept, database, blobs, trusted)
    yield from decision_findings(named, statement["predicate"], database)
    yield from place_findings(kept, database, trusted)
    yield from one_execution(statement["predicate"], database)


def _same(envelope: Mapping[str, Json], kept: KeptReceipt) -> bool:
    try:
        return kept.envelope == envelope
    except ValueError:
        return False


def _claimed_name(envelope: Mapping[str, Json]) -> str:
    """The name that an unverified receipt gives itself; used only to report it."""
    try:
        claimed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["receipt_id"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return "receipt without a name"
    return f"receipt {claimed!s:.64}"
