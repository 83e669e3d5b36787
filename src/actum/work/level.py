"""The items of one level: side by side on one base, each committed after those before it.

Processes start in the order of ids, as slots become free. All items work on the state from before
the first of them, whatever is committed meanwhile, and commit in the order of their ids. So the
result depends neither on their speed nor on the number of slots. An item that is ready while one
before it still works gives its slot back: it is stored (*held*), its process ends, and another one
commits it when its turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from actum.errors import Refused
from actum.value import value
from actum.work.item_process import Hear, Stop
from actum.work.model import Rehearsed, RunResult, WorkItem
from actum.work.step_caps import StepCaps

T = TypeVar("T", bound=RunResult | Rehearsed)

#: A ready item waits so long for an item before it that still works; then it is stored.
_SOON_S = 0.1
#: And so long for its turn if all before it are ready: their commits take less than storing it.
_QUEUED_S = 2.0
#: The answer to an item that is ready: store everything, and end.
HOLD: Mapping[str, Any] = {"hold": True}


def _nothing(*_said: object) -> None: ...


@value
class LevelItem(Generic[T]):
    """One item of a level, and what its caller wants to know of it.

    `begin` is called before its process starts, `hear` as in `WorkItems.run`, then either `end` or
    `refuse`, each once. They are called by several threads; an error in one of them ends the level.
    """

    item: WorkItem
    run_id: str
    caps: StepCaps | None = None
    held: bool = False  #: by a process that has ended: it is ready already, and is not begun
    begin: Callable[[], None] = _nothing
    hear: Hear = _nothing
    end: Callable[[T], None] = _nothing
    refuse: Callable[[Refused], None] = _nothing


#: Works on an item; ``None``: it is ready and held.
Work = Callable[[LevelItem[T], Hear], T | None]
#: Commits a held item.
Bring = Callable[[LevelItem[T]], T]


class Level(Generic[T]):
    """The items of a level, in the order of their ids."""

    def __init__(
        self, items: Sequence[LevelItem[T]], work: Work[T], bring: Bring[T] | None = None
    ) -> None:
        """Without `bring`, an item that is ready keeps its slot until its turn."""
        self._items = items
        self._work, self._bring = work, bring
        self._beginning = threading.Lock()  #: items begin one after the other, in their order
        self._changed = threading.Condition()
        self._started = 0  #: items that were begun
        self._turn = 0  #: the first item that has not ended
        self._over: set[int] = set()
        self._ready: set[int] = set()
        self._held: set[int] = set()
        self._error: BaseException | None = None

    def run(self, at_once: int, stop: Stop) -> None:
        """Run all items, at most `at_once` at the same time. The first error stops the others, and
        is raised when they have ended."""
        threads = [
            threading.Thread(target=self._take_items, args=(stop,), name=f"actum-item-{number}")
            for number in range(min(at_once, len(self._items)))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as interrupt:  # noqa: BLE001 -- raised when the threads have ended
            self._fail(interrupt, stop)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._error is not None:
            raise self._error

    def _take_items(self, stop: Stop) -> None:
        try:
            while (number := self._begun(stop)) is not None:
                self._one(number)
        except BaseException as error:  # noqa: BLE001 -- `run` raises it, in its own thread
            self._fail(error, stop)

    def _begun(self, stop: Stop) -> int | None:
        """Begin the next item; ``None`` when all were begun, one has failed, or on a stop."""
        with self._beginning:
            if self._error is not None or stop.stopped or self._started == len(self._items):
                return None
            if not self._items[self._started].held:
                self._items[self._started].begin()
            self._started += 1
            return self._started - 1

    def _one(self, number: int) -> None:
        each = self._items[number]
        if each.held:
            self._hold(number)
            return

        def hear(said: Mapping[str, Any]) -> Any:
            if said["at"] == "ready" and not self._is_its_turn(number):
                return HOLD
            return each.hear(said)

        try:
            result = self._work(each, hear)
        except Refused as refusal:
            each.refuse(refusal)
        else:
            if result is None:
                self._hold(number)
                return
            each.end(result)
        self._end(number)

    def _hold(self, number: int) -> None:
        with self._changed:
            self._ready.add(number)
            self._held.add(number)
            self._changed.notify_all()
        self._bring_held()

    def _is_its_turn(self, number: int) -> bool:
        """Wait a moment for its turn. A stop ends its process meanwhile."""
        with self._changed:
            self._ready.add(number)
            self._changed.notify_all()

            def comes_now() -> bool:
                return self._turn == number or self._error is not None

            if self._bring is None:
                return self._changed.wait_for(comes_now)
            if self._changed.wait_for(lambda: comes_now() or self._is_queued(number), _SOON_S):
                self._changed.wait_for(comes_now, _QUEUED_S)
            return comes_now()

    def _is_queued(self, number: int) -> bool:
        """Whether only commits are before it."""
        return all(each in self._ready or each in self._over for each in range(self._turn, number))

    def _end(self, number: int) -> None:
        with self._changed:
            self._over.add(number)
            self._advance()
        self._bring_held()

    def _advance(self) -> None:
        while self._turn in self._over:
            self._turn += 1
        self._changed.notify_all()

    def _bring_held(self) -> None:
        """Commit the held items whose turn it is."""
        while True:
            with self._changed:
                number = self._turn
                if self._bring is None or number not in self._held or self._error is not None:
                    return
                self._held.discard(number)
            each = self._items[number]
            each.hear({"at": "ready", "item": each.item.id, "elapsed_ms": 0})
            each.end(self._bring(each))
            with self._changed:
                self._over.add(number)
                self._advance()

    def _fail(self, error: BaseException, stop: Stop) -> None:
        stop.stop()  # first: an item that hears that its turn has come is dead by then
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
