"""How many children a tool may have, decided by the init on every fork.

The pids cgroup counts threads and processes alike, so it cannot hold "at most N children" without
breaking every threaded program. Here each fork-like system call waits for an answer: the init
counts the processes of the namespace and says EAGAIN to the one too many. A grant whose child has
not shown up yet still counts, so that two forks at once cannot both take the last place.
"""

from __future__ import annotations

import os
import time

#: A granted fork that has neither shown a child nor come back is forgotten after this.
_FORGET_S = 1.0


class Children:
    """Counts processes below the tool; pid 1 (the init) and the tool itself are not children."""

    def __init__(self, limit: int, tool_pid: int) -> None:
        self._limit = limit
        self._seen = {1, tool_pid}
        self._granted: dict[int, float] = {}  # thread that was granted a fork -> when
        self.peak = 0

    def may_fork(self, thread: int) -> bool:
        now = time.monotonic()
        alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._granted.pop(thread, None)  # it asks again, so its last fork is through
        for _ in alive - self._seen:
            if self._granted:
                self._granted.pop(next(iter(self._granted)))
        self._seen = alive | {1}
        for waiting, since in list(self._granted.items()):
            if now - since > _FORGET_S or not os.path.exists(f"/proc/{waiting}"):
                del self._granted[waiting]
        children = len(alive) - 2 + len(self._granted)
        if children >= self._limit:
            return False
        self._granted[thread] = now
        self.peak = max(self.peak, children + 1)
        return True
