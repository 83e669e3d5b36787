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
from typing import Any

from actum.agents.workshop import Workshop
from actum.contract.model import Json
from actum.engine.work.attempt import is_conflict
from actum.engine.work.dag import needs_of, resolve_dependencies
from actum.engine.work.model import RunResult, Status, WorkItem
from actum.value import value

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

    @property
    def ok(self) -> bool:
        succeeded = all(result.status is Status.SUCCESS for result in self.results.values())
        return succeeded and not self.blocked

    def document(self) -> dict[str, Json]:
        return {
            "ok": self.ok,
            "levels": [list(level) for level in self.levels],
            "results": {name: result.document() for name, result in self.results.items()},
            "blocked": {name: list(needs) for name, needs in self.blocked.items()},
            "again": list(self.again),
        }


class Foreman:
    def __init__(self, workshop: Workshop, on_event: OnEvent, *, at_once: int) -> None:
        self._workshop = workshop
        self._on_event = on_event
        self._at_once = at_once
        self._telling = threading.Lock()

    def carry_out(self, items: Sequence[WorkItem]) -> WorkDone:
        """Everything that can be done. Raises before the first item if the graph is no graph."""
        levels = resolve_dependencies(items)
        for item in items:
            self._workshop.agent(item.agent_id)  # unknown to the last level is unknown now
        results: dict[str, RunResult] = {}
        blocked: dict[str, tuple[str, ...]] = {}
        again: list[str] = []
        for number, level in enumerate(levels):
            ready = []
            for item in level:
                missing = tuple(
                    name
                    for name in needs_of(item, items)
                    if name not in results or results[name].status is not Status.SUCCESS
                )
                if missing:
                    blocked[item.id] = missing
                    self._tell({"at": "blocked", "item": item.id, "waits_for": list(missing)})
                else:
                    ready.append(item)
            if ready:
                names: list[Json] = [item.id for item in ready]
                self._tell({"at": "level", "level": number, "items": names})
                results |= self._level(ready)
                again += self._conflicts(ready, results)
        return WorkDone(
            levels=tuple(tuple(item.id for item in level) for level in levels),
            results=results,
            blocked=blocked,
            again=tuple(again),
        )

    def _level(self, items: Sequence[WorkItem]) -> dict[str, RunResult]:
        turns = _Turns([item.id for item in items], self._at_once)

        def run(item: WorkItem) -> RunResult:
            def hear(said: Mapping[str, Any]) -> None:
                turns.hear(item.id, said["at"])
                self._tell(said)

            try:
                result = self._workshop.run(item, hear=hear)
            finally:
                turns.over(item.id)
            self._told(item, result)
            return result

        # A thread for each: the kernel ties the life of an item's process to who started it.
        with ThreadPoolExecutor(max_workers=len(items)) as threads:
            return dict(zip((item.id for item in items), threads.map(run, items), strict=True))

    def _conflicts(self, items: Sequence[WorkItem], results: dict[str, RunResult]) -> list[str]:
        """Carry out again, one by one, what met another item's changes."""
        met = [item for item in items if is_conflict(results[item.id].error)]
        for item in met:
            self._tell({"at": "conflict", "item": item.id, "why": results[item.id].error})
            results[item.id] = self._workshop.run(item, hear=self._tell)
            self._told(item, results[item.id])
        return [item.id for item in met]

    def _told(self, item: WorkItem, result: RunResult) -> None:
        self._tell(
            {
                "at": "ended",
                "item": item.id,
                "status": result.status.value,
                "files": result.metrics.files_touched,
                "elapsed_ms": result.metrics.execution_time_ms,
                "reason": result.error or result.denial_reason,
                "receipt_id": result.receipt_id,
            }
        )

    def _tell(self, event: Mapping[str, Json]) -> None:
        with self._telling:
            self._on_event(event)


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
