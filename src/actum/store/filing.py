"""Executions that are on record but not yet filed: one row each, until there is time.

What is kept of an execution belongs into four tables with eight indexes, and putting it there costs
more than anything else that is written at its end, while the caller waits. So it is laid into one
row of `unfiled`, in the same durable commit as its audit record, and filed many at a time: before
anything is read, before any other transaction, when many lie there, and when the store is closed.
After a crash whoever opens the store next does it. Nobody reads `unfiled` itself, so there is no
second way to tell a story.
"""

from __future__ import annotations

import sqlite3

from actum.errors import EvidenceUnavailable

#: So many rows, and the next execution files them first: few enough to look through quickly, and
#: seldom enough that hardly anyone waits for it.
MANY = 48

#: A row of `executions` says what was said last of its id.
REPLACING = """
ON CONFLICT (execution_id) DO UPDATE SET identity_sha256 = excluded.identity_sha256,
    contract_sha256 = excluded.contract_sha256, trace_id = excluded.trace_id,
    session = excluded.session, tool_id = excluded.tool_id, state = excluded.state,
    outcome = excluded.outcome, result_json = excluded.result_json,
    receipt_id = excluded.receipt_id, started_at = excluded.started_at,
    ended_at = excluded.ended_at, owner = excluded.owner, opening = excluded.opening,
    pending_seq = excluded.pending_seq
"""
_EXECUTIONS = f"""
INSERT INTO executions (execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    state, outcome, result_json, receipt_id, started_at, ended_at, owner, opening, pending_seq)
SELECT execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    state, outcome, result_json, receipt_id, started_at, ended_at, owner, opening, pending_seq
FROM unfiled WHERE true ORDER BY seq
{REPLACING}"""  # noqa: S608 -- all of it stands here
_RECEIPTS = """
INSERT INTO receipts (receipt_id, execution_id, evidence_id, final_seq, envelope, sha256)
SELECT receipt_id, execution_id, evidence_id, final_seq, envelope, sha256
FROM unfiled WHERE state = 'FINAL' ORDER BY final_seq
"""
_RECORDS = """
INSERT INTO evidence_records (evidence_id, execution_id, evidence_ref, document)
SELECT evidence_id, execution_id, evidence_ref, record
FROM unfiled WHERE state = 'FINAL' ORDER BY final_seq
"""
# Not `->>`: this Python's SQLite may be 3.37, the first that has STRICT tables.
_EVENTS = """
INSERT INTO trace_events (receipt_id, trace_id, execution_id, attempt, event_type, ts, tool_id,
    runner_type, container_id, duration_ms, outcome, data)
SELECT unfiled.receipt_id, json_extract(event.value, '$.trace_id'),
    json_extract(event.value, '$.execution_id'), json_extract(event.value, '$.attempt'),
    json_extract(event.value, '$.event_type'), json_extract(event.value, '$.ts'),
    json_extract(event.value, '$.tool_id'), json_extract(event.value, '$.runner_type'),
    json_extract(event.value, '$.container_id'), json_extract(event.value, '$.duration_ms'),
    json_extract(event.value, '$.outcome'), json_extract(event.value, '$.data')
FROM unfiled, json_each(unfiled.events) AS event
WHERE unfiled.state = 'FINAL' ORDER BY unfiled.final_seq, event.key
"""
_STEPS = (_EXECUTIONS, _RECEIPTS, _RECORDS, _EVENTS, "DELETE FROM unfiled")
#: What the tables say of a row that they cannot hold. Anything else (no room) is the disk's.
_UNFIT = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}


def is_unfiled(source: sqlite3.Connection | sqlite3.Cursor) -> bool:
    return source.execute("SELECT 1 FROM unfiled LIMIT 1").fetchone() is not None


def file_away(cursor: sqlite3.Cursor) -> None:
    """Put everything where it belongs, inside the transaction of `cursor`."""
    if not is_unfiled(cursor):
        return
    try:
        for step in _STEPS:
            cursor.execute(step)
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in _UNFIT:
            raise
        raise EvidenceUnavailable(
            f"An execution that lies unfiled in the store is not as it was laid there: {error}."
            " Nothing is read until it is.",
            remedy="Restore the home from a backup; keep this one, for whoever finds out why.",
        ) from error
