"""Closes executions whose process died, from the opening record written before their start.

The opening record holds everything that the closing records will need. So closing an interrupted
execution needs nothing that died with its process. It states only known facts: the execution was
about to start, and its end was not seen.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import EvidenceUnavailable
from actum.evidence.executions import Opening, not_open
from actum.evidence.log import Log
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.records.audit import VERSION, Kind, closed
from actum.evidence.records.checklists import unreached
from actum.evidence.records.encoding import encoded
from actum.evidence.records.error_event import Phase, error_document
from actum.evidence.records.opening import OpeningRecord
from actum.evidence.records.receipt import MANIFEST, Receipt, statement_of
from actum.evidence.records.trace import rfc3339
from actum.store.writer import Rows, ended

INTERRUPTED = "INTERRUPTED"
_OUTCOME = Outcome.EXCEPTION


def opening(begun: OpeningRecord) -> Opening:
    """The input of `close_interrupted`."""
    return Opening(owner=current_owner(), document=begun.opening())


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
        end = ended(
            (
                *(execution_id, _OUTCOME.value, receipt.receipt_id, ended_at),
                *(left["record"]["evidence_id"], left["record"]["evidence_ref"]),
                *(receipt.sha256, final_seq),
            ),
            *(b"", record, receipt.encoded, encoded([])),
        )
        rows = Rows()
        rows.end(end, ())
        rows.insert(page.cursor)
    return receipt


def _pending(cursor: sqlite3.Cursor, execution_id: str, opening: Opening) -> dict[str, Json]:
    """The PENDING record. Its digest must match the opening that is about to be signed."""
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
            f"The opening record of execution {execution_id} was changed after its start, so"
            " its end cannot be signed.",
            remedy="`actum verify --all` names what differs; restore the home from a backup.",
        )
    return pending


def _closed(left: dict[str, Json], ended_at: str, pending_seq: int) -> tuple[bytes, bytes]:
    """The evidence record and the statement of an execution whose end was not seen."""
    if "statement" in left:
        return _closed_as_version_1(left, ended_at, pending_seq)
    before = left["record"]
    record = encoded({**before, **_record_of_the_lost(left, ended_at, pending_seq)})
    sha256 = sha256_bytes(record)
    predicate = {
        **left["predicate"],
        **_ended_unseen(before["started_at"], ended_at),
        "evidence": {"evidence_id": before["evidence_id"], "sha256": sha256},
        "result_sha256": None,
    }
    subjects = [{"name": MANIFEST, "digest": {"sha256": sha256}}]
    return record, statement_of(encoded(subjects), encoded(predicate))


def _record_of_the_lost(left: dict[str, Json], ended_at: str, pending_seq: int) -> dict[str, Json]:
    # Every field that `record.ended` has; tests/unit/evidence/test_ledger.py compares them.
    before, lists = left["record"], unreached(left["pre"], pending_seq)
    return {
        "outcome": _OUTCOME,
        "reason_codes": [INTERRUPTED],
        "violations": [],
        "errors": [_error_of_the_lost(before)],
        "cached": None,
        "exit_code": None,
        "output": None,
        "full_output": None,
        "files": [],
        "not_collected": [],
        "diff_summary": None,
        "tests": None,
        "checklists": lists,
        "ended_at": ended_at,
        "duration_ms": 0,
    }


def _error_of_the_lost(before: dict[str, Json]) -> dict[str, Json]:
    return error_document(
        tool_id=before["tool_id"],
        adapter_id=before["adapter_id"],
        attempt=before["attempt"],
        phase=Phase.RUNNER,
        code=INTERRUPTED,
    )


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
    """An opening of version 1: both documents complete but for the end time."""
    # Version 1 wrote it before its PENDING record had a number.
    left["record"]["checklists"]["pre_execution"][-1]["detail"] = f"audit record {pending_seq}"
    record = encoded({**left["record"], "ended_at": ended_at})
    statement, sha256 = left["statement"], sha256_bytes(record)
    statement["subject"][0]["digest"]["sha256"] = sha256
    statement["predicate"]["evidence"]["sha256"] = sha256
    statement["predicate"]["time"]["finished"] = ended_at
    return record, encoded(statement)


def opened_with(opening: dict[str, Json]) -> dict[str, Json]:
    """The facts of an opening, of either version, in the form of a predicate."""
    if "statement" in opening:
        predicate: dict[str, Json] = opening["statement"]["predicate"]
        return predicate
    return {**opening["predicate"], "time": {"started": opening["record"]["started_at"]}}
