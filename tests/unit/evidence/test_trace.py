"""The trace accepts each attempt's lifecycle once, in order, and keeps it."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import replace

import pytest

from actum.contract.outcome import TraceOutcome
from actum.errors import EvidenceUnavailable
from actum.evidence.records.trace import LIFECYCLE, EventType, Trace, TraceEvent, missing_events
from actum.evidence.traces import Traces

from .factories import House, make_events


def event(kind: EventType, attempt: int = 1) -> TraceEvent:
    return TraceEvent(
        event_type=kind,
        trace_id="t",
        execution_id="e",
        attempt=attempt,
        tool_id="TL-003",
        runner_type="local",
        container_id=None,
        duration_ms=0,
        outcome=TraceOutcome.ERROR if kind is EventType.TOOL_RUN_END else None,
    )


@pytest.mark.parametrize("order", list(itertools.permutations(LIFECYCLE)))
def test_only_the_lifecycle_order_is_accepted(order: tuple[EventType, ...]) -> None:
    trace = Trace()
    if order == LIFECYCLE:
        for kind in order:
            trace.emit(event(kind))
        assert missing_events(trace.events, 1) == ()
        return
    with pytest.raises(EvidenceUnavailable, match="was due"):
        for kind in order:
            trace.emit(event(kind))


def test_an_event_that_comes_twice_is_a_fault() -> None:
    trace = Trace()
    for kind in LIFECYCLE:
        trace.emit(event(kind))
    with pytest.raises(EvidenceUnavailable, match="nothing more"):
        trace.emit(event(EventType.TOOL_RUN_END))


def test_denials_may_come_at_any_time_and_attempts_are_counted_apart() -> None:
    trace = Trace()
    trace.emit(event(EventType.DENIAL))
    trace.emit(event(EventType.TOOL_RUN_START))
    trace.emit(event(EventType.TOOL_RUN_START, attempt=2))
    assert missing_events(trace.events, 2) == (
        "tool_run_resource_applied of attempt 1",
        "tool_run_output_captured of attempt 1",
        "tool_run_end of attempt 1",
        "tool_run_resource_applied of attempt 2",
        "tool_run_output_captured of attempt 2",
        "tool_run_end of attempt 2",
    )


def test_sealed_events_are_kept_in_order_and_cannot_be_changed(house: House) -> None:
    facts = house.execute()
    kept = Traces(house.database).of_execution(facts.execution_id)
    assert kept == tuple(recorded.document() for recorded in facts.events)
    assert [each["event_type"] for each in kept] == [kind.value for kind in LIFECYCLE]
    assert Traces(house.database).of_trace(facts.trace_id) == kept
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        house.database._connection.execute("UPDATE trace_events SET duration_ms = 1")


def test_an_event_of_another_execution_cannot_be_sealed_with_this_one(house: House) -> None:
    stranger = tuple(
        replace(kept, event=replace(kept.event, execution_id="nobody")) for kept in make_events("x")
    )
    with pytest.raises(EvidenceUnavailable, match="an event of another execution"):
        house.execute(events=stranger)
