"""Says what a receipt proves, and names whatever does not fit it.

The signature comes first: what it does not cover is read for one purpose only, to say which
receipt is bad. All findings are returned, good and bad, so that a reader sees what was looked at.
Without a checkpoint kept elsewhere, records cut off the end of the log cannot be noticed here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.findings import (
    Finding,
    judged,
    place_findings,
    signer_finding,
    store_findings,
)
from actum.evidence.log_findings import checkpoint_findings, read_log
from actum.evidence.receipt import MANIFEST, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE
from actum.evidence.receipts import KeptReceipt, Receipts
from actum.evidence.row_findings import (
    Answers,
    execution_findings,
    file_findings,
    journal_finding,
    one_execution,
    stray_findings,
)
from actum.evidence.work_findings import work_findings
from actum.store import dsse, note
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.keys import PublicKey

Trusted = Mapping[str, PublicKey]


def verify_receipt(
    envelope: Mapping[str, Json], trusted: Trusted, database: Database, blobs: BlobStore
) -> tuple[Finding, ...]:
    """Check a receipt against its signer and against all that the store holds about it."""
    subject = _claimed_name(envelope)
    return tuple(_receipt_findings(envelope, trusted, database, blobs, subject))


def verify_file(path: Path, trusted: Trusted) -> tuple[Finding, ...]:
    """Check an exported receipt on its own. The last finding says what that leaves open."""
    statement, findings = _signed_statement(read_receipt_file(path), trusted, f"receipt {path}")
    if statement is None:
        return findings
    open_questions = "not checked without its home: evidence record, files, trace, audit log"
    return (*findings, Finding(_named(statement), "alone", True, open_questions))


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
        """One kept receipt, all that hangs on it, and its place in the log."""
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
        """Everything this home holds. `checkpoint` is one kept elsewhere: its text and its name.

        Each thing is looked at once, so that this takes twice as long for twice as much.
        """
        findings: list[Finding] = []
        try:
            sound = journal_finding(self._database)
            findings.append(sound)
            with nullcontext() if sound.passed else self._database.as_it_is():
                findings += file_findings(self._database)
                self._verify_all(findings, checkpoint)
        except EvidenceUnavailable as error:
            # A damaged page: what was found so far is worth more than an abort.
            findings.append(Finding("database", "readable", False, error.message))
        return tuple(findings)

    def verify_log(self, checkpoint: tuple[str, str]) -> tuple[Finding, ...]:
        """The audit log alone, against a checkpoint kept elsewhere."""
        reading = read_log(self._database, self._trusted, _size_of(checkpoint[0]))
        kept = checkpoint_findings(checkpoint[0], reading, self._trusted, checkpoint[1])
        return (*reading.findings, *kept)

    def _verify_all(self, findings: list[Finding], checkpoint: tuple[str, str] | None) -> None:
        wanted = _size_of(checkpoint[0]) if checkpoint else None
        reading = read_log(self._database, self._trusted, wanted)
        findings += reading.findings
        if checkpoint:
            text, where = checkpoint
            findings += checkpoint_findings(text, reading, self._trusted, where)
        answers = Answers({})
        for (receipt_id,) in self._database.rows(
            "SELECT receipt_id FROM receipts ORDER BY final_seq, rowid"
        ):
            kept = self._receipts.find(receipt_id)
            statement, found = self._kept_findings(kept)
            findings += found
            if statement is not None:
                answers.add(statement["predicate"])
                findings.append(signer_finding(kept, reading.signer_at(kept.final_seq)))
        findings += execution_findings(self._database, answers, reading.unclosed)
        findings += stray_findings(self._database)
        findings += work_findings(self._database, self._trusted)

    def _kept_findings(self, kept: KeptReceipt) -> tuple[dict[str, Json] | None, list[Finding]]:
        subject = f"receipt {kept.receipt_id}"
        intact = sha256_bytes(kept.encoded) == kept.sha256
        stored = judged(subject, "stored bytes", intact, "they are not those that were stored")
        try:
            envelope = kept.envelope
        except ValueError:
            return None, [stored, Finding(subject, "shape", False, "it is not JSON")]
        statement, signed = _signed_statement(envelope, self._trusted, subject)
        findings = [stored, *signed]
        if statement is not None:
            findings += store_findings(statement, kept, self._database, self._blobs)
        return statement, findings


def _receipt_findings(
    envelope: Mapping[str, Json],
    trusted: Trusted,
    database: Database,
    blobs: BlobStore,
    subject: str,
) -> Iterator[Finding]:
    statement, findings = _signed_statement(envelope, trusted, subject)
    yield from findings
    if statement is None:
        return
    named = _named(statement)
    kept = Receipts(database, blobs.root.parent).get(statement["predicate"]["receipt_id"])
    if kept is None:
        yield Finding(named, "known here", False, "this home has no such receipt")
        return
    yield judged(named, "known here", _same(envelope, kept), "the copy kept here is another one")
    yield from store_findings(statement, kept, database, blobs)
    yield from place_findings(kept, database, trusted)
    yield from one_execution(statement["predicate"], database)


def _size_of(checkpoint: str) -> int | None:
    """How many records a checkpoint claims; ``None`` for something that is none."""
    try:
        return note.parse(checkpoint).checkpoint.size
    except VerificationFailed:
        return None


def _same(envelope: Mapping[str, Json], kept: KeptReceipt) -> bool:
    try:
        return kept.envelope == envelope
    except ValueError:
        return False


def _signed_statement(
    envelope: Mapping[str, Json], trusted: Trusted, subject: str
) -> tuple[dict[str, Json] | None, tuple[Finding, ...]]:
    try:
        payload = dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE)
    except VerificationFailed as error:
        return None, (Finding(subject, "signature", False, error.message),)
    try:
        statement = json.loads(payload)
        problem = _shape_problem(statement)
    except ValueError:
        problem = "the payload is not JSON"
    if problem:
        return None, (
            Finding(subject, "signature", True),
            Finding(subject, "shape", False, problem),
        )
    named = _named(statement)
    return statement, (Finding(named, "signature", True), Finding(named, "shape", True))


_PREDICATE_FIELDS = frozenset(
    {
        *("receipt_id", "execution_id", "trace_id", "attempt", "session", "parent_receipt"),
        *("requested_by", "purpose_sha256", "contract", "input_digest", "tool", "adapter"),
        *("policy", "approvals", "proof", "executable", "runner", "outcome", "reason_codes"),
        *("ending", "streams", "output_digest", "artifacts", "artifacts_total", "enforcement"),
        *("denials", "trace", "time", "evidence", "result_sha256", "environment"),
    }
)


def _shape_problem(statement: Json) -> str:
    # A trusted key signs other things too: only a statement of this very type may pass.
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
        return f"_type: it is not {STATEMENT_TYPE}"
    if statement.get("predicateType") != PREDICATE_TYPE:
        return f"predicateType: it is not {PREDICATE_TYPE}"
    predicate, subjects = statement.get("predicate"), statement.get("subject")
    if not isinstance(predicate, dict) or set(predicate) != _PREDICATE_FIELDS:
        return "predicate: it has other fields than an execution receipt"
    evidence = predicate["evidence"]
    digest = evidence.get("sha256") if isinstance(evidence, dict) else None
    manifest = {"name": MANIFEST, "digest": {"sha256": digest}}
    if not isinstance(subjects, list) or not subjects or subjects[0] != manifest:
        return f"subject[0]: it is not the {MANIFEST} of the predicate"
    return ""


def _named(statement: Mapping[str, Json]) -> str:
    return f"receipt {statement['predicate']['receipt_id']}"


def _claimed_name(envelope: Mapping[str, Json]) -> str:
    """The name an unproven receipt gives itself; only good for saying which one is bad."""
    try:
        claimed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["receipt_id"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return "receipt without a name"
    return f"receipt {claimed!s:.64}"
