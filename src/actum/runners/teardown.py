"""Teardown of ended sandboxes, and preparation of new ones, on a thread of its own.

Closing the socket wakes the init of an ended sandbox, which exits and frees its namespaces. The
kernel may run a woken process on the processor of the waker, so this would delay an answer that is
ready. So would the request for the next prepared sandbox, and receiving it at about that time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actum.runners.cleanup import Cleanup

#: Pause before a teardown, because the caller is about to answer.
_PAUSE_S = 0.002
#: Sandboxes that may wait; a caller that brings more closes its own.
_MOST = 8


class Teardown:
    """The teardown thread of one runner. Shared by threads."""

    def __init__(self, refill: Callable[[], None], take_in: Callable[[], None]) -> None:
        self._refill = refill
        self._take_in = take_in
        self._due: queue.SimpleQueue[tuple[Cleanup, Callable[[], None], bool] | None]
        self._due = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._closed = False

    def schedule(self, ended: Cleanup, then: Callable[[], None], *, hurried: bool = False) -> None:
        """Request the next sandbox, end this one soon, and then call `then`. Returns at once.
        `hurried`: request the next one in this thread, now. Such a caller is back before the other
        thread has run, and would only wait for it."""
        if hurried:
            self._refill()
        with self._guard:
            if not self._closed and self._due.qsize() < _MOST:
                if self._worker is None:
                    name = "actum-teardown"
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
