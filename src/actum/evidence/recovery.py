"""Executions whose process died: closed with the ending that was written down beforehand.

Before the start, `opening` writes the record and the statement that hold if nobody comes back to
seal the execution. So the ending of a vanished one needs nothing that died with its process, and
says only what is known: it was about to start, and its end was not seen.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import EvidenceUnavailable
from actum.evidence.audit import Kind, closed
from actum.evidence.encoding import encoded
from actum.evidence.executions import Opening, not_open
from actum.evidence.facts import ExecutionFacts, Intent, Opened
from actum.evidence.log import Log
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.receipt import Receipt, encode_statement, sign_receipt
from actum.evidence.receipts import insert_receipt
from actum.evidence.record import build_record, insert_record
from actum.evidence.trace import rfc3339
from actum.value import fields

INTERRUPTED = "INTERRUPTED"
OPENED = Opened(pending_seq=0)  # not known yet: `_ended` puts the real number in
_OUTCOME = Outcome.EXCEPTION


def opening(intent: Intent) -> Opening:
    """What `close_interrupted` will need; holds no value of the environment and no stdin."""
    lost = ExecutionFacts(
        **{field.name: getattr(intent, field.name) for field in fields(Intent)},
        outcome=_OUTCOME,
        reason_codes=(INTERRUPTED,),
        ended_at=intent.started_at,
        duration_ms=0,
        opened=OPENED,
    )
    record = encoded(build_record(lost, stored=(), redact=bytes))
    statement = encode_statement(lost, record_sha256="", result_sha256=None)
    document = b'{"record":%s,"statement":%s}' % (record, statement)
    return Opening(owner=current_owner(), document=document.decode())


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
        pending = _pending(page.cursor, execution_id, Opening(owner=found[1], document=found[0]))
        record = encoded(_ended(left["record"], ended_at, found[2]))
        statement = _completed(left["statement"], ended_at, sha256_bytes(record))
        receipt = sign_receipt(encoded(statement), left["record"]["receipt_id"], page.signer)
        final_seq = page.append(
            {
                **pending,
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


def _ended(record: dict[str, Json], ended_at: str, pending_seq: int) -> dict[str, Json]:
    # The opening was written before its PENDING record had a number.
    opened = record["checklists"]["pre_execution"][-1]
    opened["detail"] = f"audit record {pending_seq}"
    return {**record, "ended_at": ended_at}


def _completed(statement: dict[str, Json], ended_at: str, record_sha256: str) -> dict[str, Json]:
    statement["subject"][0]["digest"]["sha256"] = record_sha256
    statement["predicate"]["evidence"]["sha256"] = record_sha256
    statement["predicate"]["time"]["finished"] = ended_at
    return statement
