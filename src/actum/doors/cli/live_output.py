"""Passes the tool's output on while it runs: in order, to stdout and stderr, byte for byte.

A terminal gets it without control sequences other than colour (`screen_filter`), unless the caller
asked for the raw bytes.

The thread that supervises the tool enforces its deadline, so it must never block on our reader. The
bytes go through a bounded queue to a thread of their own; a reader that leaves, or that stalls
while the queue is full, cancels the tool, as a pipeline would stop its writer.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from actum.doors.cli.screen_filter import ScreenFilter

if TYPE_CHECKING:
    from actum.runners.base import Cancel

_QUEUE_BYTES = 8 * 1024 * 1024
_PATIENCE_S = 5.0  #: how long a reader may take nothing at all while the queue is full
_DESCRIPTORS = {"stdout": 1, "stderr": 2}


@contextmanager
def passing_through(cancel: Cancel, *, raw: bool = False) -> Iterator[Live]:
    """Live output for one execution; afterwards `cancel` is left alone."""
    live = Live(cancel, raw=raw)
    try:
        yield live
    finally:
        live.end()


class Live:
    """An `OnOutput`."""

    def __init__(self, cancel: Cancel, *, raw: bool = False) -> None:
        self._cancel = cancel
        screens = [name for name, number in _DESCRIPTORS.items() if os.isatty(number)]
        self._screens = frozenset(screens)
        self._filters = {} if raw else {name: ScreenFilter() for name in screens}
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._passed = 0
        self._ends_in = b""
        self._ended = False
        self._lost = False
        self._thread: threading.Thread | None = None

    def __call__(self, stream: str, content: bytes) -> None:
        screen = self._filters.get(stream)
        if screen is not None:
            content = screen.feed(content)
        with self._changed:
            while not self._lost and self._waiting_bytes > _QUEUE_BYTES:
                passed = self._passed
                self._changed.wait(_PATIENCE_S)
                if self._passed == passed:
                    self._lose()
            if self._lost:
                return
            self._append(stream, content)

    def _append(self, stream: str, content: bytes) -> None:
        if not content:
            return
        self._queue.append((_DESCRIPTORS[stream], content))
        if stream in self._filters:
            self._ends_in = self._filters[stream].ends_in.encode() or self._ends_in
        elif stream in self._screens:
            self._ends_in = content[-1:]
        self._waiting_bytes += len(content)
        self._changed.notify_all()
        if self._thread is None:
            # A daemon: a reader that never reads again does not keep us from exiting.
            self._thread = threading.Thread(target=self._pass_on, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """The tool has ended: no more output follows, and nothing is left to cancel."""
        with self._changed:
            for stream, screen in self._filters.items():
                if not self._lost:
                    self._append(stream, screen.finish())
            self._ended = True
            self._changed.notify_all()

    def drain(self) -> None:
        """Returns when everything has been passed on, however long its reader takes.

        On a terminal, the messages of Actum begin on a new line.
        """
        if self._thread is not None and not self._lost:
            self._thread.join()
            if self._ends_in not in (b"", b"\n") and "stderr" in self._screens:
                os.write(2, b"\n")

    @property
    def removed(self) -> bool:
        """Whether control sequences were removed."""
        return any(screen.removed for screen in self._filters.values())

    def _lose(self) -> None:
        self._lost = True
        self._queue.clear()
        if not self._ended:
            self._cancel.cancel()

    def _pass_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended)
                if not self._queue:
                    return
                descriptor, content = self._queue.popleft()
            rest = memoryview(content)
            while rest:
                try:
                    written = write(descriptor, rest)
                except OSError:
                    # The reader left, or the disk is full: the rest is dropped.
                    with self._changed:
                        self._lose()
                        self._changed.notify_all()
                    return
                rest = rest[written:]
                with self._changed:
                    self._passed += written
                    self._waiting_bytes -= written
                    self._changed.notify_all()


def write(descriptor: int, content: memoryview) -> int:
    """As os.write, also where the parent process made the descriptor non-blocking."""
    while True:
        try:
            return os.write(descriptor, content)
        except BlockingIOError:
            select.select([], [descriptor], [])
