"""The limit on sandboxes that are alive at once, and the queues for a free place.

A place is the right to run one sandbox. A request that finds none waits in the queue of its caller.
The queues take turns, so a caller with a thousand requests does not starve one with a single
request. The queues together are bounded: a request that would exceed the bound is refused, or, if
the longest queue is another caller's, the last request of that queue is. A waiting request was
neither started nor recorded, so a refusal here needs no cleanup.

Requests have no priorities. The limit applies to one process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, Self

from actum.errors import Refused
from actum.runners.base import Cancel

if TYPE_CHECKING:
    from actum.contract.model import Contract


class Got(Enum):
    """The result of a request for a place."""

    AT_ONCE = auto()
    AFTER_A_WAIT = auto()
    CANCELLED = auto()  #: before there was a place; none is held


class Turn(Protocol):
    """One request for a place. Raises `Refused` if the request cannot wait for one."""

    @property
    def holds(self) -> bool:
        """Whether it has one now."""
        ...

    def place(self, contract: Contract) -> AbstractContextManager[Got]:
        """Hold a place inside the block."""
        ...


class State(Enum):
    WAITING = auto()
    HELD = auto()
    PUSHED_OUT = auto()
    LEFT = auto()


class Waiting:
    """One request in its caller's queue. `wake` is called once it no longer waits."""

    __slots__ = ("caller", "state", "wake")

    def __init__(self, caller: str, wake: Callable[[], None]) -> None:
        self.caller = caller
        self.wake = wake
        self.state = State.WAITING

    @property
    def holds(self) -> bool:
        return self.state is State.HELD


class ConcurrencyLimit:
    """Shared by threads. The holder of a place gives it back."""

    def __init__(self, count: int, *, queued: int) -> None:
        self.count = count
        self.queued = queued
        self._lock = threading.Lock()
        self._free = count
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()  #: the next turn first
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def free(self) -> int:
        return self._free

    def try_take(self) -> bool:
        """Take a place if one is free. Then no request waits, so none is passed over."""
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            return True

    def join(self, caller: str, wake: Callable[[], None]) -> Waiting:
        """Take a place, or wait in the caller's queue; refused if the queues are full."""
        waiting = Waiting(caller, wake)
        pushed_out = None
        with self._lock:
            if self._free:
                self._free -= 1
                waiting.state = State.HELD
                return waiting
            if self._waiting >= self.queued:
                pushed_out = self._push_out(caller)
                if pushed_out is None:
                    raise queue_full(self.queued)
            self._queues.setdefault(caller, deque()).append(waiting)
            self._waiting += 1
        if pushed_out is not None:
            pushed_out.wake()
        return waiting

    def _push_out(self, caller: str) -> Waiting | None:
        """Remove the last of the longest queue, if that is longer than `caller`'s would be."""
        longest = max(self._queues.values(), key=len, default=None)
        own = len(self._queues.get(caller, ()))
        if longest is None or len(longest) <= own + 1:
            return None
        last = longest.pop()
        last.state = State.PUSHED_OUT
        self._waiting -= 1
        return last

    def leave(self, waiting: Waiting) -> bool:
        """Stop waiting. False: too late, `wake` was or is being called."""
        with self._lock:
            if waiting.state is not State.WAITING:
                return False
            waiting.state = State.LEFT
            queue = self._queues[waiting.caller]
            queue.remove(waiting)
            if not queue:
                del self._queues[waiting.caller]
            self._waiting -= 1
            return True

    def give_back(self) -> None:
        with self._lock:
            if not self._queues:
                self._free += 1
                return
            # Handed over, never freed in between: no other request can take it.
            caller, queue = self._queues.popitem(last=False)
            following = queue.popleft()
            if queue:
                self._queues[caller] = queue  # behind every other caller
            following.state = State.HELD
            self._waiting -= 1
        following.wake()


class Queueing:
    """The turn of a caller that blocks."""

    def __init__(self, concurrency: ConcurrencyLimit, cancel: Cancel | None, wait_s: float) -> None:
        self._limit = concurrency
        self._cancel = cancel
        self._wait_s = wait_s
        self._caller = ""
        self.holds = False

    def place(self, contract: Contract) -> Self:
        self._caller = contract.metadata.requested_by
        return self

    def __enter__(self) -> Got:
        got = self._take(self._caller)
        self.holds = got is not Got.CANCELLED
        return got

    def __exit__(self, *_: object) -> None:
        if self.holds:
            self.holds = False
            self._limit.give_back()

    def _take(self, caller: str) -> Got:
        cancel = self._cancel
        if cancel is not None and cancel.requested:
            return Got.CANCELLED
        if self._limit.try_take():
            return Got.AT_ONCE
        # No descriptor: a thousand waiting requests must not use up the process's files. And no
        # lock or event: a signal handler may cancel while this thread is inside one.
        woken: SimpleQueue[None] = SimpleQueue()

        def wake() -> None:
            woken.put(None)

        waiting = self._limit.join(caller, wake)
        if waiting.holds:
            return Got.AT_ONCE
        if cancel is not None:
            cancel.listen(wake)
        try:
            _sleep(woken, waiting, cancel, time.monotonic() + self._wait_s)
            in_vain = self._limit.leave(waiting)
        except BaseException:
            if not self._limit.leave(waiting) and waiting.holds:
                self._limit.give_back()  # the place came together with the interrupt
            raise
        finally:
            if cancel is not None:
                cancel.unlisten(wake)
        if waiting.holds:
            return Got.AFTER_A_WAIT
        if not in_vain:
            raise queue_full(self._limit.queued)
        if cancel is not None and cancel.requested:
            return Got.CANCELLED
        raise queue_timeout(self._wait_s)


class Sharing:
    """The turn of an execution that another one waits for: it runs in that one's place.

    A place of its own would never be free if all were held by executions that wait.
    """

    holds = True

    @contextmanager
    def place(self, contract: Contract) -> Iterator[Got]:  # noqa: ARG002 -- the same for any contract
        yield Got.AT_ONCE


def _sleep(woken: SimpleQueue[None], waiting: Waiting, cancel: Cancel | None, until: float) -> None:
    """Sleep until the state of `waiting` changes, the caller cancels, or the time is over."""
    while waiting.state is State.WAITING and not (cancel is not None and cancel.requested):
        left = until - time.monotonic()
        if left <= 0:
            return
        with contextlib.suppress(Empty):
            woken.get(timeout=left)


def queue_full(queued: int) -> Refused:
    return Refused(
        "QUEUE_FULL",
        f"All places are taken and {queued} requests wait already; nothing ran.",
        remedy="Ask again later and less at once, or raise limits.max_queued or"
        " limits.max_concurrent in actum.toml.",
    )


def queue_timeout(waited_s: float) -> Refused:
    return Refused(
        "QUEUE_TIMEOUT",
        f"No place was free within {waited_s:g} s; nothing ran.",
        remedy="Ask again later, wait longer (limits.max_wait_s in actum.toml, `queue_s` of the"
        " call), or raise limits.max_concurrent.",
    )
