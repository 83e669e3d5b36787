"""Executions whose process died: closed with the ending that was written down beforehand.

Before the start, `opening` writes down all that its records would say by then. So the ending of a
vanished one needs nothing that died with its process, and says only what is known: it was about to
start, and its end was not seen.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import EvidenceUnavailable
from actum.evidence.audit import VERSION, Kind, closed
from actum.evidence.checklists import unreached
from actum.evidence.draft import Draft
from actum.evidence.encoding import encoded
from actum.evidence.executions import Opening, not_open
from actum.evidence.log import Log
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.receipt import MANIFEST, Receipt, statement_of
from actum.evidence.receipts import insert_receipt
from actum.evidence.record import insert_record
from actum.evidence.trace import rfc3339

INTERRUPTED = "INTERRUPTED"
_OUTCOME = Outcome.EXCEPTION


def opening(draft: Draft) -> Opening:
    """What `close_interrupted` will need."""
    return Opening(owner=current_owner(), document=draft.opening())


def close_interrupted(log: Log, execution_id: str) -> Receipt:
    """Seal one execution whose process is gone; raises if it is closed or its process lives."""
    ended_at = rfc3339(datetime.now(UTC))
    with log.page() as page:
        found = page.cursor.execute(
            "SELECT opening, owner, pending_seq FROM executions"
            " WHERE execution_id = ? AND state = 'PENDING'",
            (execution_id,),
        ).fetchone()
        if found is None or is_alive(found[1]):
            raise not_open(execution_id)
        left = json.loads(found[0])
        pending = _pending(
            page.cursor, execution_id, Opening(owner=found[1], document=found[0].encode())
        )
        record, statement = _closed(left, ended_at, found[2])
        receipt = Receipt(left["record"]["receipt_id"], statement, page.signer)
        final_seq = page.append(
            {
                **pending,
                "v": VERSION,
                "kind": Kind.FINAL,
                "ts": ended_at,
                "status": PROJECTIONS[_OUTCOME].action,
                "outcome": _OUTCOME,
                "reason_codes": [INTERRUPTED],
                "receipt_sha256": receipt.sha256,
                "opening_sha256": None,
            },
        )
        page.cursor.execute(
            "UPDATE executions SET state = 'FINAL', outcome = ?, receipt_id = ?, ended_at = ?,"
            " owner = NULL, opening = NULL, pending_seq = NULL WHERE execution_id = ?",
            (_OUTCOME.value, receipt.receipt_id, ended_at, execution_id),
        )
        evidence_id = left["record"]["evidence_id"]
        insert_receipt(
            page.cursor,
            receipt,
            execution_id=execution_id,
            evidence_id=evidence_id,
            final_seq=final_seq,
        )
        insert_record(
            page.cursor,
            record,
            evidence_id=evidence_id,
            execution_id=execution_id,
            evidence_ref=left["record"]["evidence_ref"],
        )
    return receipt


def _pending(cursor: sqlite3.Cursor, execution_id: str, opening: Opening) -> dict[str, Json]:
    """The logged record of the start. What would be signed now must be what it announced."""
    row = cursor.execute(
        "SELECT record FROM audit WHERE seq ="
        " (SELECT pending_seq FROM executions WHERE execution_id = ?)",
        (execution_id,),
    ).fetchone()
    pending: dict[str, Json] = json.loads(row[0]) if row else {}
    # Records of version 1 had no such digest.
    announced = pending.get("opening_sha256") if pending.get("v") != 1 else opening.sha256
    if pending.get("execution_id") != closed(execution_id) or announced != opening.sha256:
        raise EvidenceUnavailable(
            f"What was written down before execution {execution_id} started was changed since, so"
            " its end cannot be signed.",
            remedy="`actum verify --all` names what differs; restore the home from a backup.",
        )
    return pending


def _closed(left: dict[str, Json], ended_at: str, pending_seq: int) -> tuple[bytes, bytes]:
    """The evidence record and the statement of an execution whose end nobody saw."""
    if "statement" in left:
        return _closed_as_version_1(left, ended_at, pending_seq)
    before = left["record"]
    record = encoded({**before, **_record_of_the_lost(left["pre"], ended_at, pending_seq)})
    sha256 = sha256_bytes(record)
    predicate = {
        **left["predicate"],
        **_ended_unseen(before["started_at"], ended_at),
        "evidence": {"evidence_id": before["evidence_id"], "sha256": sha256},
        "result_sha256": None,
    }
    subjects = [{"name": MANIFEST, "digest": {"sha256": sha256}}]
    return record, statement_of(encoded(subjects), encoded(predicate))


def _record_of_the_lost(pre: list[Json], ended_at: str, pending_seq: int) -> dict[str, Json]:
    # Every field that `record.ended` has; tests/unit/evidence/test_ledger.py compares them.
    lists = unreached(pre, pending_seq)
    return {
        "outcome": _OUTCOME,
        "reason_codes": [INTERRUPTED],
        "violations": [],
        "exit_code": None,
        "output": None,
        "full_output": None,
        "files": [],
        "not_collected": [],
        "checklists": lists,
        "ended_at": ended_at,
        "duration_ms": 0,
    }


def _ended_unseen(started_at: str, ended_at: str) -> dict[str, Json]:
    return {
        "outcome": _OUTCOME,
        "reason_codes": [INTERRUPTED],
        "ending": None,
        "streams": None,
        "output_digest": None,
        "artifacts": [],
        "artifacts_total": 0,
        "enforcement": [],
        "denials": {"count": 0, "kinds": [], "system_calls": {}},
        "trace": {"count": 0, "sha256": sha256_bytes(encoded([]))},
        "time": {"started": started_at, "finished": ended_at, "duration_ms": 0},
    }


def _closed_as_version_1(
    left: dict[str, Json], ended_at: str, pending_seq: int
) -> tuple[bytes, bytes]:
    """An opening that an older Actum wrote: both documents whole, to be dated."""
    # It was written before its PENDING record had a number.
    left["record"]["checklists"]["pre_execution"][-1]["detail"] = f"audit record {pending_seq}"
    record = encoded({**left["record"], "ended_at": ended_at})
    statement, sha256 = left["statement"], sha256_bytes(record)
    statement["subject"][0]["digest"]["sha256"] = sha256
    statement["predicate"]["evidence"]["sha256"] = sha256
    statement["predicate"]["time"]["finished"] = ended_at
    return record, encoded(statement)


def opened_with(opening: dict[str, Json]) -> dict[str, Json]:
    """What an opening, of either form, says of its execution, in the words of a predicate."""
    if "statement" in opening:
        predicate: dict[str, Json] = opening["statement"]["predicate"]
        return predicate
    return {**opening["predicate"], "time": {"started": opening["record"]["started_at"]}}
