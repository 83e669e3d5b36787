"""Stored trace events: written when their execution is sealed, read in the order they came."""

from __future__ import annotations

import json
from collections.abc import Iterable

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable
from actum.evidence.records.trace import Recorded
from actum.store.database import Database

_SELECT = """
SELECT trace_id, execution_id, attempt, event_type, ts, tool_id, runner_type, container_id,
    duration_ms, outcome, data
FROM trace_events
"""
FIELDS = (
    *("trace_id", "execution_id", "attempt", "event_type", "ts", "tool_id", "runner_type"),
    *("container_id", "duration_ms", "outcome", "data"),
)


class Traces:
    """Events as documents; the receipt's trace digest is over the same documents."""

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


def require_storable(events: Iterable[Recorded], execution_id: str) -> None:
    """Refuse events of another execution, and values that the table cannot hold. The write-out
    comes later: one unfit event would block every execution in the journal."""
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
