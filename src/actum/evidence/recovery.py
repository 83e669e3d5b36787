"""Executions whose process died: closed with the ending that was written down beforehand.

Before the start, `opening` writes the record and the statement that hold if nobody comes back to
seal the execution. So the ending of a vanished one needs nothing that died with its process, and
says only what is known: it was about to start, and its end was not seen.
"""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.evidence.audit import Kind, append_document, read
from actum.evidence.encoding import encoded
from actum.evidence.executions import not_open
from actum.evidence.facts import ExecutionFacts, Intent, Opened
from actum.evidence.owner import is_alive
from actum.evidence.receipt import Receipt, build_statement, sign_receipt
from actum.evidence.receipts import insert_receipt
from actum.evidence.record import build_record, insert_record
from actum.evidence.trace import rfc3339
from actum.store.database import Database
from actum.store.keys import Signer

INTERRUPTED = "INTERRUPTED"
_OUTCOME = Outcome.EXCEPTION


def opening(intent: Intent, opened: Opened) -> str:
    """What `close_interrupted` will need; holds no value of the environment and no stdin."""
    lost = ExecutionFacts(
        **{field.name: getattr(intent, field.name) for field in fields(Intent)},
        outcome=_OUTCOME,
        reason_codes=(INTERRUPTED,),
        ended_at=intent.started_at,
        duration_ms=0,
        opened=opened,
    )
    record = build_record(lost, stored=(), redact=bytes)
    statement = build_statement(lost, record_sha256="", result_sha256=None)
    return encoded(
        {"pending_seq": opened.pending_seq, "record": record, "statement": statement}
    ).decode()


def close_interrupted(database: Database, signer: Signer, execution_id: str) -> Receipt:
    """Seal one execution whose process is gone; raises if it is closed or its process lives."""
    ended_at = rfc3339(datetime.now(UTC))
    with database.transaction() as cursor:
        found = cursor.execute(
            "SELECT opening, owner FROM executions WHERE execution_id = ? AND state = 'PENDING'",
            (execution_id,),
        ).fetchone()
        if found is None or is_alive(found[1]):
            raise not_open(execution_id)
        left = json.loads(found[0])
        record = encoded({**left["record"], "ended_at": ended_at})
        receipt = sign_receipt(
            _completed(left["statement"], ended_at, sha256_bytes(record)), signer
        )
        final_seq = append_document(
            cursor,
            {
                **read(cursor, left["pending_seq"]),
                "kind": Kind.FINAL,
                "ts": ended_at,
                "status": PROJECTIONS[_OUTCOME].action,
                "outcome": _OUTCOME,
                "reason_codes": [INTERRUPTED],
                "receipt_sha256": receipt.sha256,
            },
        )
        cursor.execute(
            "UPDATE executions SET state = 'FINAL', outcome = ?, receipt_id = ?, ended_at = ?,"
            " owner = NULL, opening = NULL WHERE execution_id = ?",
            (_OUTCOME.value, receipt.receipt_id, ended_at, execution_id),
        )
        evidence_id = left["record"]["evidence_id"]
        insert_receipt(
            cursor,
            receipt,
            execution_id=execution_id,
            evidence_id=evidence_id,
            final_seq=final_seq,
        )
        insert_record(
            cursor,
            record,
            evidence_id=evidence_id,
            execution_id=execution_id,
            evidence_ref=left["record"]["evidence_ref"],
        )
    return receipt


def _completed(statement: dict[str, Json], ended_at: str, record_sha256: str) -> dict[str, Json]:
    statement["subject"][0]["digest"]["sha256"] = record_sha256
    statement["predicate"]["evidence"]["sha256"] = record_sha256
    statement["predicate"]["time"]["finished"] = ended_at
    return statement
