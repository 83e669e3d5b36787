"""Calls a caller's `on_output`, and awaits it in the caller's event loop if it is async.

The thread that supervises the tool waits for each call: chunks stay in order, the tool waits for a
slow listener once its pipe is full, and an error of the listener ends the execution, as an error of
a plain function does. A cancelled call does not wait for its listener: the event loop that the
listener needs may be blocked by `Runtime.close`, or the listener may wait for the cancelled task.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable

from actum.runners.base import Cancel


class AwaitedOutput:
    """An `OnOutput` for a call that is awaited. Made by the task that awaits the call."""

    def __init__(self, on_output: Callable[[str, bytes], object], cancel: Cancel) -> None:
        self._on_output = on_output
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        # The listener sees the context variables of that task.
        self._context = contextvars.copy_context()

    def __call__(self, stream: str, content: bytes) -> None:
        returned = self._on_output(stream, content)
        if not isinstance(returned, Awaitable):
            return
        listening = _Listening(returned)
        self._cancel.listen(listening.release)
        try:
            self._loop.call_soon_threadsafe(listening.begin, context=self._context)
            listening.released.wait()
        except RuntimeError:  # the event loop is closed
            listening.drop()
            raise
        finally:
            self._cancel.unlisten(listening.release)
        if listening.error is not None:
            raise listening.error
        if not listening.ended:
            self._loop.call_soon_threadsafe(listening.cancel)


class _Listening:
    """One awaited call. `begin`, `cancel` and `_end` run in the event loop."""

    def __init__(self, awaitable: Awaitable[object]) -> None:
        self._awaitable = awaitable
        self._future: asyncio.Future[object] | None = None
        self.released = threading.Event()  #: the supervising thread may go on
        self.ended = False
        self.error: BaseException | None = None

    def release(self) -> None:
        self.released.set()

    def begin(self) -> None:
        try:
            self._future = asyncio.ensure_future(self._awaitable)
        except Exception as error:  # noqa: BLE001 -- raised in the thread that waits
            self.error = error
            self.release()
            return
        self._future.add_done_callback(self._end)

    def _end(self, future: asyncio.Future[object]) -> None:
        self.ended = True
        if future.cancelled():
            self.error = RuntimeError("on_output was cancelled.")
        else:
            self.error = future.exception()
        self.release()

    def cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def drop(self) -> None:
        """Close a coroutine that nothing will await; Python would warn about it."""
        close = getattr(self._awaitable, "close", None)
        if close is not None:
            close()
