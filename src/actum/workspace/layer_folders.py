"""Folders with empty layers: made before there is a request, removed after its answer.

A transaction needs a folder with the layers of each writable folder. Such a folder has nothing of a
request but its name and the modes of its upper layers. So a thread makes the next one while nobody
waits, as sandboxes are made, and removes those that no tool has written to. Each is used once.

A process that is killed leaves folders that name it as their owner; recovery removes them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import defaultdict
from pathlib import Path

from actum import removal
from actum.runners.layers import claim, make_layers

#: Pause before the work, because the caller is about to answer.
_PAUSE_S = 0.005
#: Folders that wait, and folders that wait for their removal. Beyond that, a caller does the work.
_MOST = 8


class LayerFolders:
    """Of one home. Shared by threads."""

    def __init__(self, home: Path, *, ahead: bool) -> None:
        """`ahead`: with a thread. Without it, nothing waits and removals are done at once."""
        self._transactions = home / "transactions"
        self._process = os.getpid()  # a folder names its owner, and a fork is another process
        self._ahead = ahead
        self._guard = threading.Lock()
        self._waiting: defaultdict[int, list[Path]] = defaultdict(list)  #: by number of layers
        self._wanted: queue.SimpleQueue[int | Path | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None

    def take(self, count: int) -> Path | None:
        """A claimed folder with the layers of `count` folders, in numbered folders; the caller
        renames it. ``None`` if none waits."""
        if not self._works():
            return None
        with self._guard:
            found = self._waiting[count].pop() if self._waiting[count] else None
        self._put(count)
        return found

    def drop(self, folder: Path) -> None:
        """Remove a folder with layers soon, or at once."""
        if not self._works() or self._wanted.qsize() >= _MOST or not self._put(folder):
            removal.remove(folder)

    def _works(self) -> bool:
        return self._ahead and os.getpid() == self._process

    def _put(self, work: int | Path) -> bool:
        """Whether there is a thread for it."""
        with self._guard:
            if self._worker is None:
                worker = threading.Thread(target=self._work, name="actum-layers", daemon=True)
                # Too many threads: the next request retries.
                with contextlib.suppress(RuntimeError):
                    worker.start()
                    self._worker = worker
            if self._worker is None:
                return False
        self._wanted.put(work)
        return True

    def _work(self) -> None:
        while (work := self._wanted.get()) is not None:
            time.sleep(_PAUSE_S)
            self._carry_out(work)
            while not self._wanted.empty():
                if (work := self._wanted.get()) is None:
                    return
                self._carry_out(work)

    def _carry_out(self, work: int | Path) -> None:
        # Recovery removes what cannot be removed now, and a request makes its own layers.
        with contextlib.suppress(removal.RemovalRefused, OSError):
            if isinstance(work, Path):
                removal.remove(work)
            elif sum(map(len, self._waiting.values())) < _MOST:
                self._make(work)

    def _make(self, count: int) -> None:
        folder = self._transactions / f"ready-{os.urandom(8).hex()}"
        claim(folder)
        try:
            for number in range(count):
                make_layers(folder / str(number))
        except BaseException:
            removal.remove(folder)
            raise
        with self._guard:
            self._waiting[count].append(folder)

    def close(self) -> None:
        if not self._works():
            return
        self._ahead = False
        if self._worker is not None:
            self._wanted.put(None)
            self._worker.join()
        for folder in (folder for waiting in self._waiting.values() for folder in waiting):
            with contextlib.suppress(removal.RemovalRefused, OSError):
                removal.remove(folder)
        self._waiting.clear()
