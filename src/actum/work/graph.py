"""Runs a graph of work items level by level: in parallel on one frozen base, committed in order.

All items of a level freeze the same state before the first of them starts, and commit one by one in
the order of their ids, so the result does not depend on their speed. An item whose paths were
changed by an earlier commit is run again, alone, on the state after it. An item whose dependencies
did not succeed is not run and is reported as blocked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from actum.contract.model import Json
from actum.value import value
from actum.work.dag import needs_of, resolve_dependencies
from actum.work.execute_item import is_conflict
from actum.work.item_process import Hear, Stop
from actum.work.level import Turns
from actum.work.model import Rehearsed, RunResult, Status, WorkItem
from actum.work.work_items import WorkInterrupted, WorkItems

T = TypeVar("T", bound=RunResult | Rehearsed)

#: Receives every event: ``{"at": ..., "item": ..., ...}``.
OnEvent = Callable[[Mapping[str, Json]], None]


@value
class WorkDone:
    """The outcome of a graph: a result for every item that ran, a reason for every other."""

    levels: tuple[tuple[str, ...], ...]
    results: Mapping[str, RunResult]
    blocked: Mapping[str, tuple[str, ...]]  #: item -> dependencies that did not succeed
    again: tuple[str, ...] = ()  #: run a second time, after a conflict
    cancelled: bool = False  #: stopped early; an item without a result did not start

    @property
    def ok(self) -> bool:
        succeeded = all(result.status is Status.SUCCESS for result in self.results.values())
        return succeeded and not self.blocked and not self.cancelled

    def document(self) -> dict[str, Json]:
        return {
            "ok": self.ok,
            "levels": [list(level) for level in self.levels],
            "results": {name: result.document() for name, result in self.results.items()},
            "blocked": {name: list(needs) for name, needs in self.blocked.items()},
            "again": list(self.again),
            **({"cancelled": True} if self.cancelled else {}),
        }


class GraphInterrupted(KeyboardInterrupt):
    """Ctrl-C while a graph ran. All its processes have ended, and every started run is closed."""

    def __init__(self, done: WorkDone) -> None:
        super().__init__()
        self.done = done


@value
class Rehearsal:
    """The outcome that a graph would have."""

    results: Mapping[str, Rehearsed]
    blocked: Mapping[str, tuple[str, ...]]
    again: tuple[str, ...]

    def document(self) -> dict[str, Json]:
        return {
            "dry_run": True,
            "items": {name: result.document() for name, result in self.results.items()},
            "blocked": {name: list(needs) for name, needs in self.blocked.items()},
            "again": list(self.again),
        }


class _Graph(Generic[T]):
    """One pass through a graph: results, blocked items, and items that were run twice."""

    def __init__(
        self, levels: Sequence[Sequence[WorkItem]], do: Callable[[WorkItem, Hear], T]
    ) -> None:
        self.levels = levels
        self.do = do
        self.results: dict[str, T] = {}
        self.blocked: dict[str, tuple[str, ...]] = {}
        self.again: list[str] = []


class WorkGraph:
    def __init__(self, work_items: WorkItems, on_event: OnEvent, *, at_once: int) -> None:
        self._work_items = work_items
        self._on_event = on_event
        self._at_once = at_once
        self._telling = threading.Lock()
        self._stop = Stop()

    def carry_out(self, items: Sequence[WorkItem]) -> WorkDone:
        """Run every item that is not blocked. Raises before the first item if the graph is invalid,
        and `GraphInterrupted` on Ctrl-C."""
        work_items, stop = self._work_items, self._stop
        graph = _Graph(
            self._levels(items), lambda item, hear: work_items.run(item, hear=hear, stop=stop)
        )
        try:
            self._go_through(graph)
        except KeyboardInterrupt as interrupt:
            raise GraphInterrupted(_done(graph, cancelled=True)) from interrupt
        return _done(graph)

    def rehearse(self, items: Sequence[WorkItem]) -> Rehearsal:
        """Run on a copy of the project: the changes that each item would make. Commits nothing."""
        work_items, levels = self._work_items, self._levels(items)
        with work_items.copied() as base:
            graph = _Graph(
                levels,
                lambda item, hear: work_items.rehearse(item, base, hear=hear, stop=self._stop),
            )
            self._go_through(graph)
        return Rehearsal(results=graph.results, blocked=graph.blocked, again=tuple(graph.again))

    def _levels(self, items: Sequence[WorkItem]) -> tuple[tuple[WorkItem, ...], ...]:
        levels = resolve_dependencies(items)
        for item in items:
            self._work_items.agent(item.agent_id)  # refuse an unknown agent before any item runs
        return levels

    def _go_through(self, graph: _Graph[T]) -> None:
        items = [item for level in graph.levels for item in level]
        for number, level in enumerate(graph.levels):
            ready = []
            for item in level:
                missing = tuple(
                    name
                    for name in needs_of(item, items)
                    if name not in graph.results or graph.results[name].status is not Status.SUCCESS
                )
                if missing:
                    graph.blocked[item.id] = missing
                    self._tell({"at": "blocked", "item": item.id, "waits_for": list(missing)})
                else:
                    ready.append(item)
            if ready:
                names: list[Json] = [item.id for item in ready]
                self._tell({"at": "level", "level": number, "items": names})
                self._side_by_side(ready, graph)
                self._conflicts(ready, graph)

    def _side_by_side(self, items: Sequence[WorkItem], graph: _Graph[T]) -> None:
        turns = Turns([item.id for item in items], self._at_once)

        def run(item: WorkItem) -> T:
            def hear(said: Mapping[str, Any]) -> None:
                turns.hear(item.id, said["at"])
                self._tell(said)

            try:
                result = graph.results[item.id] = graph.do(item, hear)
            finally:
                turns.over(item.id)
            self._report_end(item, result)
            return result

        # One thread per item: PDEATHSIG ties an item's process to the thread that started it.
        with ThreadPoolExecutor(max_workers=len(items)) as threads:
            try:
                list(threads.map(run, items))
            except BaseException:
                # Leaving this block waits for the threads, and they wait for their processes.
                self._stop.stop()
                raise

    def _conflicts(self, items: Sequence[WorkItem], graph: _Graph[T]) -> None:
        """Run items that conflicted with another item's changes again, one by one."""
        for item in items:
            reason = graph.results[item.id].reason
            if is_conflict(reason):
                graph.again.append(item.id)
                self._tell({"at": "conflict", "item": item.id, "why": reason})
                try:
                    graph.results[item.id] = graph.do(item, self._tell)
                except WorkInterrupted as interrupt:
                    if interrupt.result is not None:
                        graph.results[item.id] = interrupt.result  # type: ignore[assignment]
                    raise
                self._report_end(item, graph.results[item.id])

    def _report_end(self, item: WorkItem, result: RunResult | Rehearsed) -> None:
        event: dict[str, Json] = {"at": "ended", "item": item.id, "status": result.status.value}
        if isinstance(result, RunResult):
            event["files"] = result.metrics.files_touched
            event["elapsed_ms"] = result.metrics.execution_time_ms
            event["receipt_id"] = result.receipt_id
        self._tell({**event, "reason": result.reason})

    def _tell(self, event: Mapping[str, Json]) -> None:
        with self._telling:
            self._on_event(event)


def _done(graph: _Graph[RunResult], *, cancelled: bool = False) -> WorkDone:
    levels = tuple(tuple(item.id for item in level) for level in graph.levels)
    results = graph.results
    return WorkDone(
        levels=levels,
        results={name: results[name] for level in levels for name in level if name in results},
        blocked=graph.blocked,
        again=tuple(graph.again),
        cancelled=cancelled,
    )
