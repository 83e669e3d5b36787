"""Cleanup of an ended tool: the kernel frees its processes, and the host checks that it did.

The tool runs no more and its output is read, but the kernel still frees its memory. That can take
longer than everything the host has left to do. So the host goes on, and checks last.
"""

from __future__ import annotations

import threading

from actum.sandbox.cgroup import Cgroup
from actum.sandbox.handle import Sandbox


class Cleanup:
    """Of one sandbox. `found` is called when the record is closed, `end` by the runner."""

    def __init__(self, sandbox: Sandbox, cgroup: Cgroup) -> None:
        self._sandbox = sandbox
        self._cgroup = cgroup
        self.by_init = False  #: the init is alive and has reported the groups' counters
        self._gone = False
        self._found: tuple[str, ...] | None = None
        self._lock = threading.Lock()

    def found(self) -> tuple[str, ...]:
        """What is left behind, after waiting for the processes to be gone."""
        with self._lock:
            if self._found is None:
                self._gone = self.by_init and self._sandbox.await_gone()
                self._found = () if self._gone else remove(self._cgroup)
            return self._found

    def end(self) -> None:
        """Let the init exit, and drop the groups that it has removed."""
        self.found()
        if self._gone and not self._sandbox.await_cleared():
            remove(self._cgroup)  # empty by now; if it stays, the next sweep removes it
        self._sandbox.close()
        self._cgroup.close()


def remove(cgroup: Cgroup) -> tuple[str, ...]:
    """Remove the group; returns what cannot be removed. A successful removal is the proof: the
    kernel refuses to remove a group that holds a process."""
    try:
        cgroup.remove()
    except OSError as error:
        return (f"cgroup {error.filename}: {error.strerror}",)
    return ()
