"""Audit records of pure executors: a decision, a PENDING before the start, a final record after.

Closed fields only: names, words of closed sets, numbers, digests. No field can hold a payload, an
output or an error text. Only the pipeline has a `Journal`; an executor runs in another process that
never had one. An action that cannot be recorded is not started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.evidence.journal_entry import closed_part, opened_part
from actum.evidence.log import Log, Page
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.records.audit import VERSION, closed
from actum.evidence.records.trace import rfc3339
from actum.executors.actions import Profile
from actum.executors.gate import Verdict
from actum.executors.model import ActionResult
from actum.executors.reasons import Reason
from actum.store.database import Database
from actum.store.writer import Rows
from actum.value import value

KIND = "ACTION"
ACTION_AUDIT = "action_audit"
DECISION_AUDIT = "decision_audit"


@value
class Judged:
    """The gate's decision about one request, as it is recorded."""

    verdict: Verdict
    profile: Profile
    actions_fingerprint: str


class Journal:
    """Two frames of the home's journal for each action: no SQLite transaction is needed."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    def open(self, judged: Judged, pending: ActionResult) -> int:
        """Record that the action is allowed and about to start; raises if it must not start."""
        with self._log.entry() as entry:
            entry.append(_decision(judged, pending))
            owner = current_owner()
            start = _action(pending, duration_ms=0, at=pending.ts_utc)
            # The row names the owning process: by that, recovery decides whether to close it.
            seq = entry.append({**start, "owner_sha256": sha256_bytes(owner.encode())})
            entry.add(opened_part(seq, owner))
        return seq

    def close(self, pending_seq: int, result: ActionResult, duration_ms: int) -> None:
        """Record how an open action ended."""
        with self._log.entry() as entry:
            entry.append(_action(result, duration_ms=duration_ms, pending=pending_seq))
            entry.add(closed_part(pending_seq))

    def refuse(self, judged: Judged, result: ActionResult, duration_ms: int) -> None:
        """Record an action that never started: the decision and its end together."""
        with self._log.entry() as entry:
            entry.append(_decision(judged, result))
            entry.append(_action(result, duration_ms=duration_ms))

    def malformed(self, input_digest: str) -> None:
        """Record a document that is not a valid request."""
        with self._log.entry() as entry:
            entry.append(
                {
                    "v": VERSION,
                    "kind": KIND,
                    "event_type": DECISION_AUDIT,
                    "ts": rfc3339(datetime.now(UTC)),
                    "decision": "DENY",
                    "reason_codes": ["REQUEST_INVALID"],
                    "input_digest": input_digest,
                }
            )

    def close_orphans(self) -> tuple[int, ...]:
        """Close every PENDING whose process has ended; returns their numbers.

        An executor has no effects, so only its answer is unknown, and that is lost: FAILED.
        """
        rows = self._database.rows("SELECT pending_seq, owner FROM open_actions")
        gone = sorted(seq for seq, owner in rows if not is_alive(owner))
        return tuple(seq for seq in gone if self._close_orphan(seq))

    def _close_orphan(self, seq: int) -> bool:
        try:
            with self._log.page() as page:
                # Read again under the write lock: another process may be doing the same.
                found = page.cursor.execute(
                    "SELECT record FROM audit JOIN open_actions ON pending_seq = seq WHERE seq = ?",
                    (seq,),
                ).fetchone()
                _require(found)
                _close(page, seq, _interrupted(json.loads(found[0]), seq))
        except _ClosedAlready:
            return False
        return True


class _ClosedAlready(Exception):
    """Rolls the transaction back: there is nothing to write."""


def _require(found: object) -> None:
    if found is None:
        raise _ClosedAlready


def _close(page: Page, pending_seq: int, document: dict[str, Json]) -> None:
    page.append(document)
    rows = Rows()
    rows.end_action(pending_seq)
    rows.insert(page.cursor)


def _decision(judged: Judged, about: ActionResult) -> dict[str, Json]:
    return {
        "v": VERSION,
        "kind": KIND,
        "event_type": DECISION_AUDIT,
        "ts": rfc3339(datetime.now(UTC)),
        "trace_id": about.trace_id,
        "action": closed(about.action),
        "decision": judged.verdict.decision.value,
        "profile_id": closed(judged.profile.profile_id),
        "profile_hash": judged.profile.hash,
        "matched_rules": list(judged.verdict.matched_rules),
        "reason_codes": list(judged.verdict.reason_codes),
        "actions_fingerprint": judged.actions_fingerprint,
        "input_digest": about.input_digest or None,
    }


def _action(
    result: ActionResult,
    *,
    duration_ms: int,
    at: datetime | None = None,
    pending: int | None = None,
) -> dict[str, Json]:
    return {
        "v": VERSION,
        "kind": KIND,
        "event_type": ACTION_AUDIT,
        "ts": rfc3339(at or datetime.now(UTC)),
        "trace_id": result.trace_id,
        "action": closed(result.action),
        "executor_id": result.executor_id,
        "executor_version": result.executor_version,
        "status": result.status.value,
        "reason_codes": _codes(result.reason_codes),
        "input_digest": result.input_digest,
        "output_digest": result.output_digest,
        "duration_ms": duration_ms,
        "pending_seq": pending,
    }


def _codes(codes: Iterable[str]) -> list[Json]:
    return [closed(str(code)) for code in codes]


def _interrupted(pending: dict[str, Json], seq: int) -> dict[str, Json]:
    return {
        **pending,
        "v": VERSION,
        "ts": rfc3339(datetime.now(UTC)),
        "status": ActionStatus.FAILED.value,
        "reason_codes": [Reason.INTERRUPTED.value],
        "pending_seq": seq,
        "owner_sha256": None,
    }
