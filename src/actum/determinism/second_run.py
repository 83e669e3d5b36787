"""The second run that checks a D2 claim, and the trace event that states what it found."""

from __future__ import annotations

from collections.abc import Iterator

from actum.capture.model import Cancelled, Capture, Exited
from actum.contract.call import Plan
from actum.contract.model import Determinism
from actum.determinism.claims import Determination, Verified
from actum.evidence.records.execution_event import execution_event
from actum.evidence.records.facts import Intent
from actum.evidence.records.trace import EventType, Trace, TraceEvent
from actum.runners.base import Cancel, Runner

#: Differs between the two runs, whatever we do.
_VARIED = ("time", "process", "sandbox")
_THROUGH_SERVERS = ("api", "mcp")


def check_claim(
    plan: Plan, runner: Runner, capture: Capture, cancel: Cancel | None, level: Determinism
) -> Determination:
    """Carry `plan` out a second time, if that can do no harm, and compare."""
    if level is not Determinism.D2:
        return Determination(level=level, why="only D2 is checked by a second run")
    if plan.adapter.kind in _THROUGH_SERVERS:
        return Determination(level=level, why="what a server answers is its own affair")
    if plan.policy.write:
        why = "the tool may write into the project, so a second run would not start as the first"
        return Determination(level=level, why=why)
    if not isinstance(capture.ending, Exited):
        return Determination(level=level, why="the tool did not end by itself")
    second = runner.run(plan, _unheard, None, cancel)
    if isinstance(second.ending, Cancelled):
        return Determination(level=level, why="cancelled during the second run", runs=2)
    differs = tuple(_differences(capture, second))
    return Determination(
        level=level,
        verified=Verified.DIFF if differs else Verified.MATCH,
        runs=2,
        varied=_VARIED,
        differs=differs,
    )


def trace_determination(
    found: Determination, intent: Intent, trace: Trace, elapsed_ms: int, cache_key: str | None
) -> None:
    # The signed trace names the key: a cached result serves no other one.
    key = {} if cache_key is None else {"cache_key": cache_key}
    data = {**found.document(), **key}
    trace.emit(execution_event(intent, EventType.DETERMINISM, data, elapsed_ms))


def _unheard(event: TraceEvent) -> None:
    """The trace holds the events of the first run, and one event about the second."""


def _differences(first: Capture, second: Capture) -> Iterator[str]:
    if first.stdout.sha256 != second.stdout.sha256:
        yield "stdout"
    if first.stderr.sha256 != second.stderr.sha256:
        yield "stderr"
    if first.ending != second.ending:
        yield "exit_code"
    if _files(first) != _files(second):
        yield "files"


def _files(capture: Capture) -> list[tuple[str, str, str]]:
    return [(item.kind, item.path, item.sha256) for item in capture.collected]
