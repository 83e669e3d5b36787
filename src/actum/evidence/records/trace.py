"""Trace events: append-only, ordered, without a byte of payload (seed 004 and its trace sink)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from actum.contract.model import Json
from actum.contract.outcome import TraceOutcome
from actum.contract.timestamps import milliseconds, utc_text
from actum.errors import EvidenceUnavailable
from actum.value import field, value


class EventType(StrEnum):
    TOOL_RUN_START = "tool_run_start"
    TOOL_RUN_RESOURCE_APPLIED = "tool_run_resource_applied"
    TOOL_RUN_OUTPUT_CAPTURED = "tool_run_output_captured"
    TOOL_RUN_END = "tool_run_end"
    DENIAL = "denial"
    EGRESS = "egress"
    APPROVAL = "approval"
    SESSION = "session"  #: one use of a tool that stays running
    CACHED = "cached"  #: answered from another execution of the session; no tool ran
    ERROR = "error"  #: an attempt that did not succeed, or a refusal
    DETERMINISM = "determinism"  #: the level claimed, and the result of a second run
    REDACTION = "redaction"  #: how often each secret was redacted from the output
    SECRET_SUSPECTED = "secret_suspected"  # noqa: S105 -- a note that something looks like one


@value
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
    at_ns: int | None = None  #: wall-clock time of the event, if it is emitted later


#: Where a runner sends its events. Raises if the event cannot be recorded.
Emit = Callable[[TraceEvent], None]


#: Events of every started attempt, in this order (seed 004).
LIFECYCLE = (
    EventType.TOOL_RUN_START,
    EventType.TOOL_RUN_RESOURCE_APPLIED,
    EventType.TOOL_RUN_OUTPUT_CAPTURED,
    EventType.TOOL_RUN_END,
)


@value
class Recorded:
    """An event and its time, or the time when it reached the trace."""

    event: TraceEvent
    ts: str  #: RFC 3339, UTC

    def document(self) -> dict[str, Json]:
        event = self.event
        return {
            "trace_id": event.trace_id,
            "execution_id": event.execution_id,
            "attempt": event.attempt,
            "event_type": event.event_type,
            "ts": self.ts,
            "tool_id": event.tool_id,
            "runner_type": event.runner_type,
            "container_id": event.container_id,
            "duration_ms": event.duration_ms,
            "outcome": event.outcome,
            "data": dict(event.data),
        }


class Trace:
    """The events of one execution, in the order they came. Runners get its `emit`.

    Events stay in memory until the execution is sealed: they share its one durable commit. An
    attempt's lifecycle events that come twice, too late or in another order are a fault at once.
    """

    def __init__(self) -> None:
        self._recorded: list[Recorded] = []
        self._reached: dict[int, int] = {}  #: attempt -> how many of its lifecycle events came
        self._lock = threading.Lock()

    def emit(self, event: TraceEvent) -> None:
        with self._lock:
            if event.event_type in LIFECYCLE:
                reached = self._reached.get(event.attempt, 0)
                due = LIFECYCLE[reached] if reached < len(LIFECYCLE) else None
                if event.event_type is not due:
                    raise EvidenceUnavailable(
                        f"Trace of {event.execution_id}, attempt {event.attempt}:"
                        f" {event.event_type} came where {due or 'nothing more'} was due.",
                        remedy="The runner is at fault; report it with `actum trace`.",
                    )
                self._reached[event.attempt] = reached + 1
            self._recorded.append(Recorded(event=event, ts=_text(event.at_ns or time.time_ns())))

    @property
    def events(self) -> tuple[Recorded, ...]:
        with self._lock:
            return tuple(self._recorded)


def missing_events(events: tuple[Recorded, ...], attempts: int) -> tuple[str, ...]:
    """Which lifecycle events of which attempt never came; empty for a whole trace."""
    seen = {(kept.event.attempt, kept.event.event_type) for kept in events}
    missing = [
        f"{kind.value} of attempt {attempt}"
        for attempt in range(1, attempts + 1)
        for kind in LIFECYCLE
        if (attempt, kind) not in seen
    ]
    if missing and any(kind is EventType.CACHED for _, kind in seen):
        return ()  # no tool ran, so there was no lifecycle
    return tuple(missing)


@lru_cache(maxsize=16)  # every record of an execution repeats its start and end times
def rfc3339(moment: datetime) -> str:
    """UTC with milliseconds and a Z: the form of times in all records."""
    return utc_text(moment)


#: A second, and its text: the events of one execution share it.
_second = (0, "")


def _text(at_ns: int) -> str:
    """As `rfc3339` writes it."""
    global _second  # noqa: PLW0603 -- one assignment: threads may disagree about which it is
    second, left = divmod(at_ns, 1_000_000_000)
    known, text = _second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = second, text
    return text + milliseconds(left // 1_000_000)
