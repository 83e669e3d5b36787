"""Kept trace events: written with the seal of their execution, read in the order they came."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable
from actum.evidence.encoding import encoded
from actum.evidence.trace import Recorded
from actum.store.database import Database

_SELECT = """
SELECT trace_id, execution_id, attempt, event_type, ts, tool_id, runner_type, container_id,
    duration_ms, outcome, data
FROM trace_events
"""
_INSERT = """
INSERT INTO trace_events (receipt_id, trace_id, execution_id, attempt, event_type, ts, tool_id,
    runner_type, container_id, duration_ms, outcome, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
FIELDS = (
    *("trace_id", "execution_id", "attempt", "event_type", "ts", "tool_id", "runner_type"),
    *("container_id", "duration_ms", "outcome", "data"),
)


class Traces:
    """Events as documents, the same that the receipt's trace digest is made of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_execution(self, execution_id: str) -> tuple[dict[str, Json], ...]:
        return self._select("WHERE execution_id = ?", (execution_id,))

    def of_receipt(self, execution_id: str, receipt_id: str) -> tuple[dict[str, Json], ...]:
        """The events one receipt signs; a refused start of the same id has its own receipt."""
        return self._select("WHERE execution_id = ? AND receipt_id = ?", (execution_id, receipt_id))

    def of_trace(self, trace_id: str) -> tuple[dict[str, Json], ...]:
        return self._select("WHERE trace_id = ?", (trace_id,))

    def _select(self, where: str, values: tuple[str, ...]) -> tuple[dict[str, Json], ...]:
        rows = self._database.rows(f"{_SELECT} {where} ORDER BY seq", values)
        return tuple(
            {**dict(zip(FIELDS, row, strict=True)), "data": json.loads(row[-1])} for row in rows
        )


def require_fileable(events: Iterable[Recorded], execution_id: str) -> None:
    """Refuse events of another execution, and such that their table cannot hold: it is filled
    later, when all executions that lie unfiled would have to wait for one that never can be."""
    for kept in events:
        event = kept.event
        if event.execution_id != execution_id:
            raise EvidenceUnavailable(
                f"The trace of {execution_id} holds an event of another execution.",
                remedy="The runner is at fault; report it with `actum trace`.",
            )
        if not (
            type(event.attempt) is type(event.duration_ms) is int
            and isinstance(event.trace_id, str)
            and isinstance(event.tool_id, str)
            and isinstance(event.runner_type, str)
            and (event.container_id is None or isinstance(event.container_id, str))
        ):
            raise EvidenceUnavailable(
                f"The event {event.event_type} of {event.execution_id} has a field of another type"
                " than a trace event's.",
                remedy="The runner is at fault: attempt and duration_ms are whole numbers, ids and"
                " runner_type are text.",
            )


def insert_events(cursor: sqlite3.Cursor, receipt_id: str, events: Iterable[Recorded]) -> None:
    cursor.executemany(_INSERT, [(receipt_id, *_row(kept)) for kept in events])


def _row(kept: Recorded) -> list[Json]:
    *values, data = kept.document().values()
    return [*values, encoded(data).decode() if data else "{}"]
