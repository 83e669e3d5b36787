"""Children are limited exactly, and threads are not children.

The pids cgroup counts both alike. So its limit is kept at "the tool, its children, and the threads
there are": every thread asks before it is made, and the limit is raised by one for it, up to a
ceiling of its own; forks are refused by the kernel itself, with its own counter as proof.

Why threads ask and not forks: a system call that waits for an answer can be interrupted by a
signal, and no program expects fork() to fail with EINTR. Thread libraries block all signals
around the call. When threads end the limit is lowered again, at most `PERIOD_MS` later; children
that slipped in meanwhile are named by `settle` and killed, the youngest first. Proved by
tests/security/resources/test_children.py.
"""

from __future__ import annotations

import os
import time

#: Threads beyond one per process, over the whole tree.
THREADS = 256
PERIOD_MS = 100


class Tasks:
    """Keeps pids.max in step with the threads that live."""

    def __init__(self, max_children: int, limit_descriptor: int) -> None:
        self._processes = 1 + max_children
        self._descriptor = limit_descriptor
        self._threads = 0
        self._settled = 0.0

    @property
    def threads(self) -> int:
        return self._threads

    def may_thread(self) -> bool:
        """Make room for one more thread, unless the ceiling is reached."""
        alive = _count_threads()
        if alive >= THREADS:
            return False
        self._set(alive + 1)
        return True

    def is_due(self) -> bool:
        return self._threads > 0 and time.monotonic() - self._settled >= PERIOD_MS / 1000

    def settle(self) -> list[int]:
        """Take back the room of threads that have ended; returns children that are too many."""
        self._set(_count_threads())
        # After the limit is lowered, so that none can be added behind our back.
        self._settled = time.monotonic()
        return _by_age()[self._processes :]

    def _set(self, threads: int) -> None:
        if threads != self._threads:
            self._threads = threads
            os.pwrite(self._descriptor, str(self._processes + threads).encode(), 0)


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _count_threads() -> int:
    extra = 0
    for name in _processes():
        try:
            extra += len(os.listdir(f"/proc/{name}/task")) - 1
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we counted
    return extra


def _by_age() -> list[int]:
    """Every process but us, oldest first."""
    found = []
    for name in _processes():
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                started = int(file.read().rpartition(b")")[2].split()[19])
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append((started, int(name)))
    return [pid for _started, pid in sorted(found)]
