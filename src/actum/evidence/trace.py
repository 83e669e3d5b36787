"""Trace events: append-only, ordered, without a byte of payload (seed 004 and its trace sink)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from actum.contract.model import Json
from actum.contract.outcome import TraceOutcome


class EventType(StrEnum):
    TOOL_RUN_START = "tool_run_start"
    TOOL_RUN_RESOURCE_APPLIED = "tool_run_resource_applied"
    TOOL_RUN_OUTPUT_CAPTURED = "tool_run_output_captured"
    TOOL_RUN_END = "tool_run_end"
    DENIAL = "denial"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One event. `data` holds counts, names of limits and digests; never output or arguments."""

    event_type: EventType
    trace_id: str
    execution_id: str
    attempt: int
    tool_id: str
    runner_type: str
    container_id: str | None
    duration_ms: int  #: since the attempt began; 0 for the first event
    outcome: TraceOutcome | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


#: Where a runner sends its events. Raises if the event cannot be kept.
Emit = Callable[[TraceEvent], None]
