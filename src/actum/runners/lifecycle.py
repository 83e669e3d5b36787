"""The four lifecycle events of one attempt, always all of them, always in this order (seed 004)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from actum.capture.model import (
    Cancelled,
    Capture,
    Closed,
    CoverLost,
    DeadlinePassed,
    Ending,
    Enforced,
    Exited,
    GoverningChanged,
    PolicyBroken,
)
from actum.capture.streams import SILENCE
from actum.capture.suspicions import suspicions
from actum.contract.call import Plan
from actum.contract.model import Json, RunnerKind
from actum.contract.outcome import TraceOutcome
from actum.evidence.records.trace import LIFECYCLE, Emit, EventType, TraceEvent
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction


class Lifecycle:
    """Emits for one attempt. A step that is never reached is emitted as aborted, not left out."""

    def __init__(self, plan: Plan, runner: RunnerKind, emit: Emit) -> None:
        self._trace = plan.trace
        self._tool_id = plan.tool.tool_id
        self._runner_type = str(runner)
        self._emit = emit
        self._passed = 0  #: how many of the steps
        self.began = time.monotonic()  #: set again by the first step
        self._began_ns: int | None = None  #: wall clock, if the first event is emitted later
        self.container_id: str | None = None

    def begin(self) -> float:
        """Note the start; returns the monotonic time. `tell_beginning` emits the event when there
        is time for it."""
        self._began_ns = time.time_ns()
        self.began = time.monotonic()
        return self.began

    def tell_beginning(self) -> None:
        self.reached(EventType.TOOL_RUN_START, {"attempt": self._trace.attempt})

    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self.began) * 1000)

    def reached(
        self,
        step: EventType,
        data: Mapping[str, Json],
        outcome: TraceOutcome | None = None,
    ) -> None:
        while LIFECYCLE[self._passed] is not step:
            self._send({"aborted": True}, None)
        self._send(data, outcome)

    def note(self, kind: EventType, data: Mapping[str, Json]) -> None:
        """An event beside the four."""
        self._emit(self._event(kind, data, None, self.elapsed_ms()))

    def abort(self) -> None:
        """A fault of ours: emit the remaining steps as aborted."""
        if self._began_ns is not None and not self._passed:
            self.tell_beginning()
        while self._passed < len(LIFECYCLE):
            last = LIFECYCLE[self._passed] is EventType.TOOL_RUN_END
            self._send({"aborted": True}, TraceOutcome.ERROR if last else None)

    def conclude(
        self, capture: Capture, denials: int, redaction: Redaction | None = None
    ) -> Capture:
        """Emit the events about the capture and the last two steps. Returns the redacted
        capture."""
        if redaction is not None:
            capture = redaction.capture(capture)
            self.note(EventType.REDACTION, {"secrets": dict(redaction.found)})
        if suspected := suspicions(capture):
            self.note(EventType.SECRET_SUSPECTED, suspected)
        for connection in capture.connections:
            self.note(EventType.EGRESS, as_dict(connection))
        self.end(capture, denials)
        return capture

    def end(self, capture: Capture, denials: int) -> None:
        """The last two steps."""
        self.reached(
            EventType.TOOL_RUN_OUTPUT_CAPTURED,
            {
                "stdout_bytes": capture.stdout.total_bytes,
                "stderr_bytes": capture.stderr.total_bytes,
                "files": len(capture.collected),
                "not_collected": len(capture.not_collected),
            },
        )
        self._end(capture.ending, denials)

    def end_unstarted(self, ending: Ending) -> None:
        self._end(ending, 0)

    def _end(self, ending: Ending, denials: int) -> None:
        self.reached(
            EventType.TOOL_RUN_END,
            {"ending": type(ending).__name__, "denials": denials},
            trace_outcome(ending),
        )

    def _send(self, data: Mapping[str, Json], outcome: TraceOutcome | None) -> None:
        step, at_ns = LIFECYCLE[self._passed], None
        if self._passed:
            elapsed_ms = self.elapsed_ms()
        else:
            elapsed_ms, at_ns = 0, self._began_ns
            if at_ns is None:
                self.began = time.monotonic()
        self._passed += 1
        self._emit(self._event(step, data, outcome, elapsed_ms, at_ns))

    def _event(
        self,
        kind: EventType,
        data: Mapping[str, Json],
        outcome: TraceOutcome | None,
        duration_ms: int,
        at_ns: int | None = None,
    ) -> TraceEvent:
        trace = self._trace
        return TraceEvent(
            event_type=kind,
            trace_id=trace.trace_id,
            execution_id=trace.execution_id,
            attempt=trace.attempt,
            tool_id=self._tool_id,
            runner_type=self._runner_type,
            container_id=self.container_id,
            duration_ms=duration_ms,
            outcome=outcome,
            data=data,
            at_ns=at_ns,
        )


_OUTCOMES = {
    Closed: TraceOutcome.SUCCESS,
    DeadlinePassed: TraceOutcome.TIMEOUT,
    PolicyBroken: TraceOutcome.DENIED,
    CoverLost: TraceOutcome.DENIED,
    GoverningChanged: TraceOutcome.DENIED,
}


def trace_outcome(ending: Ending) -> TraceOutcome:
    """The outcome in the last event."""
    if isinstance(ending, Exited):
        return TraceOutcome.ERROR if ending.code else TraceOutcome.SUCCESS
    return _OUTCOMES.get(type(ending), TraceOutcome.ERROR)


def never_started(
    plan: Plan, runner: RunnerKind, emit: Emit, foreseen: tuple[Enforced, ...]
) -> Capture:
    """Cancelled before the start: nothing ran, so there is nothing to clean up."""
    lifecycle = Lifecycle(plan, runner, emit)
    lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": plan.trace.attempt})
    ending = Cancelled(0, started=False)
    lifecycle.end_unstarted(ending)
    return Capture(
        ending=ending,
        stdout=SILENCE,
        stderr=SILENCE,
        enforcement=foreseen,
        duration_ms=lifecycle.elapsed_ms(),
        leftovers=(),
    )
