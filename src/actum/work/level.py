"""The items of one level: side by side, each committed after those before it in the order of ids.

All items freeze the same state before the first of them starts, so the result does not depend on
their speed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Turns:
    """Synchronizes the items of a level: all wait until the last has frozen, each commits after
    those before it, and at most `at_once` run at the same time."""

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
        """The item has ended, however it ended: release the items that wait for it."""
        with self._changed:
            self._over.add(name)
            self._working.discard(name)
            self._changed.notify_all()

    def _all_frozen(self) -> bool:
        return self._frozen | self._over >= set(self._names)
