"""The one row of an execution while it runs and until it is filed (see `store.filing`)."""

from __future__ import annotations

import sqlite3

from actum.evidence.executions import Opening, started_columns
from actum.evidence.facts import ExecutionFacts, Intent
from actum.evidence.receipt import Receipt
from actum.evidence.trace import rfc3339

_LAY_DOWN = """
INSERT INTO unfiled (execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    started_at, state, owner, opening, pending_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, 'PENDING', ?, ?, ?)
"""
_COMPLETE = """
UPDATE unfiled SET state = 'FINAL', outcome = ?, result_json = ?, receipt_id = ?, ended_at = ?,
    owner = NULL, opening = NULL, pending_seq = NULL, evidence_id = ?, evidence_ref = ?,
    record = ?, envelope = ?, sha256 = ?, final_seq = ?, events = ?
WHERE seq = ? AND execution_id = ? AND state = 'PENDING'
"""


def lay_down(cursor: sqlite3.Cursor, intent: Intent, opening: Opening, pending_seq: int) -> int:
    """Make an id PENDING; returns the number of its row."""
    values = (*started_columns(intent).values(), opening.owner, opening.document, pending_seq)
    cursor.execute(_LAY_DOWN, values)
    return cursor.lastrowid or 0


def complete(
    cursor: sqlite3.Cursor,
    laid: int,
    facts: ExecutionFacts,
    receipt: Receipt,
    *,
    final_seq: int,
    result: str | None,
    record: bytes,
    events: bytes,
) -> bool:
    """Make it FINAL, with all that is kept of it; false if somebody has filed it meanwhile."""
    cursor.execute(
        _COMPLETE,
        (
            facts.outcome.value,
            result,
            facts.receipt_id,
            rfc3339(facts.ended_at),
            facts.evidence_id,
            facts.evidence_ref,
            record.decode(),
            receipt.encoded.decode(),
            receipt.sha256,
            final_seq,
            events.decode(),
            laid,
            facts.execution_id,
        ),
    )
    return cursor.rowcount == 1


def is_laid(cursor: sqlite3.Cursor, execution_id: str) -> bool:
    """Whether this id was started and lies unfiled. They are few, so they have no index."""
    found = cursor.execute("SELECT 1 FROM unfiled WHERE execution_id = ?", (execution_id,))
    return found.fetchone() is not None
