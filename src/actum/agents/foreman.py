"""A graph of work items, level by level: side by side on one frozen base, committed in one order.

All items of a level freeze the same state before the first of them works, and commit by turns in
the order of their ids; so the result is the same however fast each of them is. One whose paths
were changed by an earlier turn is carried out again, alone, on what there is then. What depends on
something that did not succeed is not run: it is blocked, and said to be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from actum.agents.workshop import WorkInterrupted, Workshop
from actum.contract.model import Json
from actum.engine.work.attempt import is_conflict
from actum.engine.work.dag import needs_of, resolve_dependencies
from actum.engine.work.model import Rehearsed, RunResult, Status, WorkItem
from actum.engine.work.process import Hear, Stop
from actum.value import value

T = TypeVar("T", bound=RunResult | Rehearsed)

#: Told of everything that happens: ``{"at": ..., "item": ..., ...}``.
OnEvent = Callable[[Mapping[str, Json]], None]


@value
class WorkDone:
    """What came of a graph: a result for every item that ran, a reason for every one that did
    not."""

    levels: tuple[tuple[str, ...], ...]
    results: Mapping[str, RunResult]
    blocked: Mapping[str, tuple[str, ...]]  #: item -> what it waits for
    again: tuple[str, ...] = ()  #: carried out a second time, after a conflict
    cancelled: bool = False  #: stopped on the way; what has no result here did not begin

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
    """Ctrl-C while a graph ran. No process of it is left, and every run that began is closed."""

    def __init__(self, done: WorkDone) -> None:
        super().__init__()
        self.done = done


@value
class Rehearsal:
    """What would come of a graph."""

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
    """One way through a graph: what came of each item, what waits for what, what was done twice."""

    def __init__(
        self, levels: Sequence[Sequence[WorkItem]], do: Callable[[WorkItem, Hear], T]
    ) -> None:
        self.levels = levels
        self.do = do
        self.results: dict[str, T] = {}
        self.blocked: dict[str, tuple[str, ...]] = {}
        self.again: list[str] = []


class Foreman:
    def __init__(self, workshop: Workshop, on_event: OnEvent, *, at_once: int) -> None:
        self._workshop = workshop
        self._on_event = on_event
        self._at_once = at_once
        self._telling = threading.Lock()
        self._stop = Stop()

    def carry_out(self, items: Sequence[WorkItem]) -> WorkDone:
        """Everything that can be done. Raises before the first item if the graph is no graph, and
        `GraphInterrupted` on Ctrl-C."""
        workshop, stop = self._workshop, self._stop
        graph = _Graph(
            self._levels(items), lambda item, hear: workshop.run(item, hear=hear, stop=stop)
        )
        try:
            self._go_through(graph)
        except KeyboardInterrupt as interrupt:
            raise GraphInterrupted(_done(graph, cancelled=True)) from interrupt
        return _done(graph)

    def rehearse(self, items: Sequence[WorkItem]) -> Rehearsal:
        """The same on a copy of the project: what each item would change. Commits nothing."""
        workshop, levels = self._workshop, self._levels(items)
        with workshop.copied() as base:
            graph = _Graph(
                levels, lambda item, hear: workshop.rehearse(item, base, hear=hear, stop=self._stop)
            )
            self._go_through(graph)
        return Rehearsal(results=graph.results, blocked=graph.blocked, again=tuple(graph.again))

    def _levels(self, items: Sequence[WorkItem]) -> tuple[tuple[WorkItem, ...], ...]:
        levels = resolve_dependencies(items)
        for item in items:
            self._workshop.agent(item.agent_id)  # unknown to the last level is unknown now
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
        turns = _Turns([item.id for item in items], self._at_once)

        def run(item: WorkItem) -> T:
            def hear(said: Mapping[str, Any]) -> None:
                turns.hear(item.id, said["at"])
                self._tell(said)

            try:
                result = graph.results[item.id] = graph.do(item, hear)
            finally:
                turns.over(item.id)
            self._told(item, result)
            return result

        # A thread for each: the kernel ties the life of an item's process to its starter.
        with ThreadPoolExecutor(max_workers=len(items)) as threads:
            try:
                list(threads.map(run, items))
            except BaseException:
                # Leaving this block waits for the threads, and they wait for their processes.
                self._stop.stop()
                raise

    def _conflicts(self, items: Sequence[WorkItem], graph: _Graph[T]) -> None:
        """Carry out again, one by one, what met another item's changes."""
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
                self._told(item, graph.results[item.id])

    def _told(self, item: WorkItem, result: RunResult | Rehearsed) -> None:
        told: dict[str, Json] = {"at": "ended", "item": item.id, "status": result.status.value}
        if isinstance(result, RunResult):
            told["files"] = result.metrics.files_touched
            told["elapsed_ms"] = result.metrics.execution_time_ms
            told["receipt_id"] = result.receipt_id
        self._tell({**told, "reason": result.reason})

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


class _Turns:
    """Who of a level waits for whom: all for the last to freeze, each for those before it to
    commit, and no more at work than there is room for."""

    def __init__(self, names: Sequence[str], at_once: int) -> None:
        self._changed = threading.Condition()
        self._frozen: set[str] = set()
        self._over: set[str] = set()
        self._names = list(names)
        self._working: set[str] = set()
        self._at_once = at_once

    def hear(self, name: str, at: str) -> None:
        with self._changed:
            if at == "frozen":
                self._frozen.add(name)
                self._changed.notify_all()
                self._changed.wait_for(self._all_frozen)
                self._changed.wait_for(lambda: len(self._working) < self._at_once)
                self._working.add(name)
            elif at == "ready":
                self._working.discard(name)
                self._changed.notify_all()
                before = set(self._names[: self._names.index(name)])
                self._changed.wait_for(lambda: before <= self._over)

    def over(self, name: str) -> None:
        """Whatever became of it, nobody waits for it any more."""
        with self._changed:
            self._over.add(name)
            self._working.discard(name)
            self._changed.notify_all()

    def _all_frozen(self) -> bool:
        return self._frozen | self._over >= set(self._names)
