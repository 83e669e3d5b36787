"""Children are limited exactly, and threads are not children.

The pids cgroup counts both alike. So its limit is kept at "the tool, its children, and the threads
there are": every thread asks before it is made, and the limit is raised by one for it, up to a
ceiling of its own; forks are refused by the kernel itself, with its own counter as proof.

Why threads ask and not forks: a system call that waits for an answer can be interrupted by a
signal, and no program expects fork() to fail with EINTR. Thread libraries block all signals
around the call. When threads end the limit is lowered again, at most `PERIOD_MS` later; what a
tool could win by that is a few children for a moment, never tasks beyond the ceiling.
"""

from __future__ import annotations

import os

#: Threads beyond one per process, over the whole tree.
THREADS = 256
PERIOD_MS = 100


class Tasks:
    """Keeps pids.max in step with the threads that live."""

    def __init__(self, max_children: int, limit_descriptor: int) -> None:
        self._processes = 1 + max_children
        self._descriptor = limit_descriptor
        self._threads = 0

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

    def settle(self) -> None:
        """Take back the room of threads that have ended."""
        self._set(_count_threads())

    def _set(self, threads: int) -> None:
        if threads != self._threads:
            self._threads = threads
            os.pwrite(self._descriptor, str(self._processes + threads).encode(), 0)


def _count_threads() -> int:
    extra = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                extra += len(os.listdir(f"/proc/{name}/task")) - 1
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we counted
    return extra
