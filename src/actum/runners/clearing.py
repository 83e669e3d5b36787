"""What is left to do when a tool has ended: the kernel clears it away, and we look that it did.

It runs no more, and all it said is taken; but its memory is being taken apart, which can last
longer than everything the host has to do by then. So the host goes on, and looks last.
"""

from __future__ import annotations

import threading

from actum.sandbox.cgroup import Cgroup
from actum.sandbox.handle import Sandbox


class Clearing:
    """Of one sandbox. Asked by whoever closes the record, ended by whoever ran it."""

    def __init__(self, sandbox: Sandbox, cgroup: Cgroup) -> None:
        self._sandbox = sandbox
        self._cgroup = cgroup
        self.by_init = False  #: it lives, and has told what the groups counted
        self._gone = False
        self._found: tuple[str, ...] | None = None
        self._lock = threading.Lock()

    def found(self) -> tuple[str, ...]:
        """What is left behind, once everything is gone that goes."""
        with self._lock:
            if self._found is None:
                self._gone = self.by_init and self._sandbox.await_gone()
                self._found = () if self._gone else remove(self._cgroup)
            return self._found

    def end(self) -> None:
        """Let the init go, and forget the groups that it has removed."""
        self.found()
        if self._gone and not self._sandbox.await_cleared():
            remove(self._cgroup)  # empty, as one of them was; if it stays, the next sweep finds it
        self._sandbox.close()
        self._cgroup.close()


def remove(cgroup: Cgroup) -> tuple[str, ...]:
    """What cannot be removed. That it goes is the proof: the kernel keeps a group that holds a
    process."""
    try:
        cgroup.remove()
    except OSError as error:
        return (f"cgroup {error.filename}: {error.strerror}",)
    return ()
