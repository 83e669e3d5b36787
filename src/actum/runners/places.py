"""How many sandboxes may be alive at once; whoever comes later waits in the order of arrival.

A cap, no scheduler: it knows nothing of what waits, and prefers nobody.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from actum.runners.base import Cancel


class Places:
    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[int] = deque()  #: eventfds, first come first

    @contextmanager
    def one(self, cancel: Cancel | None) -> Iterator[bool]:
        """Hold a place inside the block. False: cancelled before there was one; none is held."""
        if cancel is not None and cancel.requested:
            yield False
            return
        held = self._take(cancel)
        try:
            yield held
        finally:
            if held:
                self._give_back()

    def _take(self, cancel: Cancel | None) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = os.eventfd(0, os.EFD_CLOEXEC)
            self._waiting.append(turn)
        try:
            poll = select.poll()
            poll.register(turn, select.POLLIN)
            if cancel is not None:
                poll.register(cancel.fileno(), select.POLLIN)
            poll.poll()
            return not self._left_queue(turn)
        except BaseException:
            if not self._left_queue(turn):
                self._give_back()  # our turn came together with the interrupt
            raise
        finally:
            os.close(turn)

    def _left_queue(self, turn: int) -> bool:
        """Whether we still waited, and now no longer do."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False

    def _give_back(self) -> None:
        with self._lock:
            if self._waiting:
                # Handed over, never freed in between: nobody can push in.
                os.eventfd_write(self._waiting.popleft(), 1)
            else:
                self._free += 1
