"""Hanging up, which lets the init of an ended sandbox leave, alone: by a thread of its own.

Whoever wakes a process may have to give way to it on its own processor, and this one takes its
namespaces apart. That is nothing to wait for with an answer in hand. Nor is asking for what the
next execution will need, and taking it in when it comes, at about that time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actum.runners.clearing import Clearing

#: So long after it was asked to, because whoever asked is about to answer.
_PAUSE_S = 0.002
#: Sandboxes that may lie around; whoever brings more closes his own.
_MOST = 8


class Hangups:
    """All of a runner's. Shared by threads."""

    def __init__(self, refill: Callable[[], None], take_in: Callable[[], None]) -> None:
        self._refill = refill
        self._take_in = take_in
        self._due: queue.SimpleQueue[tuple[Clearing, Callable[[], None], bool] | None]
        self._due = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._closed = False

    def hang_up(self, ended: Clearing, then: Callable[[], None], *, hurried: bool = False) -> None:
        """Have the next one made; let this one go soon, and do what can wait as long. Returns at
        once. Whoever is `hurried` asks for the next one himself, now: he will be back before the
        thread has got its turn, and would only wait for it."""
        if hurried:
            self._refill()
        with self._guard:
            if not self._closed and self._due.qsize() < _MOST:
                if self._worker is None:
                    name = "actum-hangup"
                    self._worker = threading.Thread(target=self._work, name=name, daemon=True)
                    self._worker.start()
                self._due.put((ended, then, hurried))
                return
        if not hurried:
            self._refill()
        ended.end()
        then()

    def _work(self) -> None:
        while (due := self._due.get()) is not None:
            ended, then, hurried = due
            if not hurried:
                self._refill()  # first: the next execution may come at any moment
            time.sleep(_PAUSE_S)
            ended.end()
            then()
            self._take_in()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._worker is None:
                return
            self._due.put(None)
        self._worker.join()
