"""Compares the receipts of work items with the store, one finding per check."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.records.encoding import encoded
from actum.evidence.records.receipt import PAYLOAD_TYPE, STATEMENT_TYPE
from actum.evidence.verify.findings import DATA_ERRORS, Finding, judged, said
from actum.store import dsse
from actum.store.keys import PublicKey
from actum.store.snapshot import Reader

_SHOWN_PATHS = 5
PREDICATE_TYPE = "urn:actum:work-receipt:v1"
#: Whether a person has accepted the project as a run left it. An acceptance has no agent: an item
#: of an agent that only has such an id is none.
_ACCEPTED = (
    "EXISTS (SELECT 1 FROM work_runs AS later WHERE later.status = 'success'"
    " AND later.agent_sha256 = '' AND later.item_id = 'accept:' || work_receipts.run_id)"
)
_ROWS = (
    "SELECT work_receipts.receipt_id, envelope, sha256, status,"  # noqa: S608 -- of constants
    f" before_hash, after_hash, record, {_ACCEPTED}"
    " FROM work_receipts LEFT JOIN work_runs USING (run_id)"
    " LEFT JOIN audit ON audit.seq = final_seq"
)


def one_work_receipt(
    database: Reader, trusted: Mapping[str, PublicKey], receipt_id: str
) -> tuple[Finding, ...]:
    """The same for one receipt; nothing if no work item has it."""
    if not _there(database):
        return ()
    rows = database.rows(f"{_ROWS} WHERE work_receipts.receipt_id = ?", (receipt_id,))
    return tuple(_row_findings(rows, trusted))


def work_file_findings(
    envelope: Mapping[str, Json], trusted: Mapping[str, PublicKey], database: Reader | None
) -> tuple[Finding, ...]:
    """A work receipt from a file: its signature, and that the store, if there is one, keeps it."""
    try:
        predicate = read_work_receipt(envelope, trusted)
    except VerificationFailed as error:
        return (Finding("work receipt", "signature", False, error.message),)
    receipt_id = str(predicate["receipt_id"])
    subject = f"work receipt {receipt_id}"
    signed = Finding(subject, "signature", True)
    if database is None:
        open_questions = "not checked without its home: run, audit log"
        return (signed, Finding(subject, "alone", True, open_questions))
    known = one_work_receipt(database, trusted, receipt_id)
    row = database.row("SELECT envelope FROM work_receipts WHERE receipt_id = ?", (receipt_id,))
    kept = row is not None and json.loads(row[0])["payload"] == envelope["payload"]
    return (signed, judged(subject, "kept", kept, "this home has no such receipt"), *known)


def is_work_receipt(envelope: Mapping[str, Json]) -> bool:
    """The name that it claims; its signature shows whether that is true."""
    try:
        statement = json.loads(base64.b64decode(str(envelope.get("payload")), validate=True))
    except (ValueError, RecursionError):
        return False
    return isinstance(statement, dict) and statement.get("predicateType") == PREDICATE_TYPE


def _row_findings(
    rows: Iterable[tuple[Any, ...]], trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    for receipt_id, envelope, digest, status, before, after, record, accepted in rows:
        subject = f"work receipt {receipt_id}"
        intact = sha256_bytes(envelope.encode()) == digest
        yield judged(subject, "stored bytes", intact, "they are not those that were stored")
        try:
            predicate = read_work_receipt(json.loads(envelope), trusted)
        except DATA_ERRORS as error:
            yield Finding(subject, "signature", False, said(error))
            continue
        yield Finding(subject, "signature", True)
        stated = tuple(predicate[name] for name in ("status", "before_hash", "after_hash"))
        same = predicate["receipt_id"] == receipt_id and stated == (status, before, after)
        yield judged(subject, "run", same, "the row of its run differs")
        yield from content_findings(subject, predicate, accepted=bool(accepted))
        logged = {} if record is None else json.loads(record)
        in_log = tuple(logged.get(name) for name in ("status", "before_hash", "after_hash"))
        yield judged(subject, "audit record", in_log == stated, "its audit record differs")


def content_findings(
    subject: str, predicate: Mapping[str, Any], *, accepted: bool
) -> Iterator[Finding]:
    """The facts of a signed receipt about its run: passed tests, accepted damage."""
    tests = predicate["tests"]
    if tests is not None and predicate["status"] == "success":
        # Older receipts, from before tests were repeated after a merge, do not state it.
        seen = tests.get("base_hash", predicate["before_hash"]) == predicate["before_hash"]
        passed = seen and tests["exit_code"] == 0
        yield judged(subject, "tests", passed, "they have not passed on what was committed")
    damage = predicate.get("damage")
    if damage is not None:
        detail = f"{damage_text(damage)}; see `actum item accept --help`"
        yield judged(subject, "workspace", accepted, detail)


def damaged_runs(database: Reader, run_id: str | None = None) -> list[tuple[str, str, str]]:
    """(run, receipt, what is wrong) for damage that recovery found and that was not accepted."""
    if not _there(database):
        return []
    # Put together from constants.
    rows = database.rows(
        "SELECT work_receipts.run_id, receipt_id, envelope FROM work_receipts"  # noqa: S608
        f" JOIN work_runs USING (run_id, receipt_id) WHERE status = 'failure' AND NOT {_ACCEPTED}"
        " AND coalesce(?, run_id) = run_id ORDER BY final_seq",
        (run_id,),
    )
    found = []
    for run, receipt_id, envelope in rows:
        statement = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
        damage = statement["predicate"].get("damage")
        if damage is not None:
            found.append((run, receipt_id, damage_text(damage)))
    return found


def damage_text(damage: Mapping[str, Any]) -> str:
    """The difference from the recorded state, for people."""
    if not damage["listed"]:
        return "DAMAGED: the project is in another state than the one on record"
    parts = [
        f"{damage[what]} {what}: {', '.join(paths[:_SHOWN_PATHS])}"
        + (" …" if damage[what] > _SHOWN_PATHS else "")
        for what in ("missing", "changed")
        if (paths := damage[f"{what}_paths"])
    ]
    return f"DAMAGED: {'; '.join(parts)}"


def read_work_receipt(
    envelope: Mapping[str, Json], trusted: Mapping[str, PublicKey]
) -> dict[str, Json]:
    """The predicate of a work receipt, if a trusted key signed it and it is whole."""
    statement = json.loads(dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE))
    if (statement.get("_type"), statement.get("predicateType")) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise VerificationFailed(f"predicateType: it is not {PREDICATE_TYPE}.")
    predicate: dict[str, Json] = statement["predicate"]
    capsule = {key: value for key, value in predicate["capsule"].items() if key != "sha256"}
    if sha256_bytes(encoded(capsule)) != statement["subject"][0]["digest"]["sha256"]:
        raise VerificationFailed("subject[0]: it is not the capsule of the predicate.")
    return predicate


def _there(database: Reader) -> bool:
    return database.row("SELECT 1 FROM sqlite_master WHERE name = 'work_receipts'") is not None
