"""A trace event about an execution itself, made from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.model import Json
from actum.evidence.records.audit import closed
from actum.evidence.records.facts import Intent
from actum.evidence.records.trace import EventType, TraceEvent


def execution_event(
    intent: Intent, kind: EventType, data: Mapping[str, Json], duration_ms: int = 0
) -> TraceEvent:
    return TraceEvent(
        event_type=kind,
        trace_id=intent.trace_id,
        execution_id=intent.execution_id,
        attempt=intent.attempt,
        tool_id=closed(intent.contract.tool_id) or "",
        runner_type=intent.policy.runner.value if intent.policy else "",
        container_id=None,
        duration_ms=duration_ms,
        data=data,
    )
