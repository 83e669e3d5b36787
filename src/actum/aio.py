"""Async twins of a runtime's calls. Built by wiring, which owns the runtime.

A waiting call is a future and an entry in the queue; it holds no thread. There are as many threads
as sandboxes may run (the *floor*), one that prepares requests before they wait (the *desk*), and
as many again for the pure plane. A request passes the desk, which finds every reason to refuse
it. If it may run and no slot is free, it waits, and starts again on the floor once it has a slot.
Nothing is recorded before that, so the second start repeats no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from actum import async_runs
from actum.async_runs import AsyncRuns, until_done
from actum.contract.model import Contract
from actum.errors import ContractInvalid, Problem
from actum.execution.awaited_output import AwaitedOutput
from actum.execution.keyword_types import check_call
from actum.execution.result import Result
from actum.runners.base import Cancel
from actum.runners.concurrency import ConcurrencyLimit, Got, Waiting, queue_full, queue_timeout

if TYPE_CHECKING:
    from actum.approvals.requests import Approvals
    from actum.execution.python_session import PythonSession
    from actum.execution.services import Services
    from actum.executors.model import ActionResult
    from actum.runs.work_done import WorkDone
    from actum.work.model import RunResult, WorkItem

_APPROVAL_POLL_S = 0.2


class Calls(async_runs.RunCalls, Protocol):
    """The blocking calls of a runtime that have an async twin."""

    services: Services
    approvals: Approvals

    @property
    def exec(self) -> Callable[..., Result]: ...
    @property
    def shell(self) -> Callable[..., Result]: ...
    @property
    def execute(self) -> Callable[..., Result]: ...
    @property
    def python(self) -> Callable[..., Result]: ...
    @property
    def python_session(self) -> Callable[..., PythonSession]: ...
    @property
    def act(self) -> Callable[..., ActionResult]: ...


class AsyncRuntime:
    """`await rt.aio.exec(...)`. Cancelling the task cancels the execution and waits for its end."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        concurrency = calls.services.concurrency
        self._floor = ThreadPoolExecutor(concurrency.count, "actum-floor")
        self._desk = ThreadPoolExecutor(1, "actum-desk")
        self._acts = ThreadPoolExecutor(concurrency.count, "actum-act")
        self._runs = async_runs.Calls()
        self.runs = AsyncRuns(self._runs, calls)  #: `rt.runs`, awaitable
        self._guard = threading.Lock()
        self._live: set[_Call] = set()

    async def work(self, item: WorkItem | Mapping[str, Any] | str | bytes | Path) -> RunResult:
        """One work item. When cancelled, its process is ended, and its end is on record."""
        return await async_runs.work(self._runs, self._calls, item)

    async def work_file(self, source: str | bytes | Path, **words: Any) -> WorkDone:
        """A work file as a durable run. When cancelled, the run is cancelled; the next call with
        the same file continues it. `on_event` is called in other threads."""
        return await async_runs.work_file(self._runs, self._calls, source, **words)

    async def exec(self, tool: str, *arguments: str, **words: Any) -> Result:
        return await self._approved(
            lambda **more: self._calls.exec(tool, *arguments, **more), self._calls.execute, words
        )

    async def shell(self, *words: str | os.PathLike[str], **options: Any) -> Result:
        return await self._approved(
            lambda **more: self._calls.shell(*words, **more), self._calls.execute, options
        )

    async def execute(self, contract: Any, **words: Any) -> Result:
        return await self._approved(
            lambda **more: self._calls.execute(contract, **more), self._calls.execute, words
        )

    async def python(self, code: str, **words: Any) -> Result:
        return await self._approved(
            lambda **more: self._calls.python(code, **more), self._calls.execute, words
        )

    @asynccontextmanager
    async def python_session(self, **words: Any) -> AsyncIterator[AsyncSession]:
        """`async with rt.aio.python_session() as s: await s.run("x = 1")`."""
        opening = self._floor.submit(self._calls.python_session, **words)
        try:
            session = await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            await until_done(opening)
            if opening.exception() is None:
                opening.result().close()
            raise
        try:
            yield AsyncSession(self, session)
        finally:
            closing = self._floor.submit(session.close)
            await until_done(closing)
            closing.result()

    async def act(self, request: Any, **words: Any) -> ActionResult:
        """One action of the pure plane. It has no effects: when cancelled, it may finish."""
        work = self._acts.submit(self._calls.act, request, **words)
        try:
            return await asyncio.shield(asyncio.wrap_future(work))
        except asyncio.CancelledError:
            if not work.cancel():  # it runs; its time limit ends it
                await until_done(work)
            raise

    async def _approved(
        self,
        function: Callable[..., Result],
        again: Callable[..., Result],
        words: Mapping[str, Any],
    ) -> Result:
        """Wait for approvals as `Runtime.execute` does, without a thread."""
        own = dict(words)
        wait_s, on_waiting = own.pop("wait_s", None), own.pop("on_waiting", None)
        queue_s = own.pop("queue_s", None)
        on_output = own.get("on_output")
        check_call(
            on_output=on_output,
            on_waiting=on_waiting,
            wait_s=wait_s,
            queue_s=queue_s,
            may_be_async=True,
        )
        _require_none(own, "cancel", "Cancel the task that awaits the call.")
        _require_none(own, "turn", "Leave it out: an awaited call waits in the queue.")
        patience = self._calls.services.wait_s if queue_s is None else queue_s
        loop = asyncio.get_running_loop()
        until = loop.time() + (wait_s or 0)
        approvals = self._calls.approvals
        while True:
            granted = None
            if wait_s is not None:
                granted = await loop.run_in_executor(self._desk, approvals.granted_so_far)
            call = _Call(self, function, again, own, patience)
            result = await call.outcome()
            if wait_s is None or "APPROVAL_REQUIRED" not in result.reason_codes:
                return result
            if on_waiting is not None:
                returned = on_waiting(result)
                if hasattr(returned, "__await__"):
                    await returned
            requests = [violation.value for violation in result.violations]
            decided = partial(approvals.wait, requests, 0.0, granted=granted)
            while not await loop.run_in_executor(self._desk, decided):
                if loop.time() >= until:
                    return result
                await asyncio.sleep(_APPROVAL_POLL_S)

    def close(self) -> None:
        """Cancel everything that is awaited, then stop the threads."""
        with self._guard:
            live = [*self._live]
        self._runs.close()
        for call in live:
            call.abandon()
        for call in live:
            with contextlib.suppress(Exception):  # raised where it is awaited
                call.done.exception()
        for pool in (self._floor, self._desk, self._acts):
            pool.shutdown()


class AsyncSession:
    """The awaitable twin of a `PythonSession`. One call at a time, in call order."""

    def __init__(self, runtime: AsyncRuntime, session: PythonSession) -> None:
        self._runtime = runtime
        self._session = session
        self._turns = asyncio.Lock()

    @property
    def receipt_id(self) -> str:
        return self._session.receipt_id

    @property
    def ended(self) -> str:
        return self._session.ended

    async def run(self, code: str, **words: Any) -> Result:
        async with self._turns:
            return await self._runtime._approved(
                lambda **more: self._session.run(code, **more), self._session.execute, words
            )


class _Call:
    """One awaited execution. At most one thread works on it, none while it waits."""

    def __init__(
        self,
        runtime: AsyncRuntime,
        function: Callable[..., Result],
        again: Callable[..., Result],
        words: Mapping[str, Any],
        patience_s: float,
    ) -> None:
        self._runtime = runtime
        self._concurrency: ConcurrencyLimit = runtime._calls.services.concurrency
        self._function = function
        self._again = again
        self._patience_s = patience_s
        self._cancel = Cancel()
        self._words = words = dict(words)
        if words.get("on_output") is not None:
            words["on_output"] = AwaitedOutput(words["on_output"], self._cancel)
        self._contract: Contract | None = None  #: set once it has passed the desk
        self._waiting: Waiting | None = None
        self.holds = False
        self._expired = False
        self._guard = threading.Lock()  #: protects its state while it waits
        self.done: Future[Result] = Future()

    async def outcome(self) -> Result:
        with self._runtime._guard:
            self._runtime._live.add(self)
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._expire)
        if self._concurrency.try_take():
            self.holds = True
            self._runtime._floor.submit(self._work)
        else:
            self._runtime._desk.submit(self._work)
        try:
            return await asyncio.shield(asyncio.wrap_future(self.done))
        except asyncio.CancelledError:
            self.abandon()
            # The execution has ended before the caller continues, however often it is cancelled.
            await until_done(self.done)
            raise
        finally:
            timer.cancel()
            with self._runtime._guard:
                self._runtime._live.discard(self)
            self._cancel.close()

    def abandon(self) -> None:
        """Cancel: end a running execution, record a waiting one as cancelled."""
        self._cancel.cancel()
        with self._guard:
            left = self._waiting is not None and self._concurrency.leave(self._waiting)
        if left:
            self._runtime._desk.submit(self._work)

    def _expire(self) -> None:
        with self._guard:
            if self.holds:
                return
            self._expired = True
            left = self._waiting is not None and self._concurrency.leave(self._waiting)
        if left:
            self._runtime._desk.submit(self._work)

    def _awake(self) -> None:
        """Called when it leaves the queue: run on the floor with a slot, or end without one."""
        with self._guard:
            self.holds = self._waiting is not None and self._waiting.holds
        (self._runtime._floor if self.holds else self._runtime._desk).submit(self._work)

    def _work(self) -> None:
        try:
            if self._contract is None:
                result = self._function(cancel=self._cancel, turn=self, **self._words)
            else:
                of_the_call = {
                    name: given
                    for name, given in self._words.items()
                    if name in ("on_output", "changes")
                }
                result = self._again(self._contract, cancel=self._cancel, turn=self, **of_the_call)
        except _NotYet:
            return
        except BaseException as error:  # noqa: BLE001 -- raised where it is awaited
            self._give_back()
            self.done.set_exception(error)
        else:
            self._give_back()
            self.done.set_result(result)

    def _give_back(self) -> None:
        if self.holds:
            self.holds = False
            self._concurrency.give_back()

    @contextmanager
    def place(self, contract: Contract) -> Iterator[Got]:
        if not self.holds:
            self._join_queue(contract)
        try:
            # A call with a slot was prepared on the floor, so after the wait.
            yield Got.CANCELLED if self._cancel.requested else Got.AT_ONCE
        finally:
            self._give_back()

    def _join_queue(self, contract: Contract) -> None:
        """Wait in the queue and free the thread. Returns only if the call was cancelled."""
        with self._guard:
            if self._cancel.requested:
                return
            if self._expired:
                raise queue_timeout(self._patience_s)
            if self._waiting is not None:
                raise queue_full(self._concurrency.queued)
            self._contract = contract
            self._waiting = self._concurrency.join(contract.metadata.requested_by, self._awake)
            at_once = self._waiting.holds
            if not at_once and self._cancel.requested and self._concurrency.leave(self._waiting):
                return
        if at_once:  # a slot became free meanwhile
            self._awake()
        raise _NotYet


class _NotYet(BaseException):
    """The call waits for a slot and its thread is free. Not an error, so not an `Exception`."""


def _require_none(words: dict[str, Any], name: str, remedy: str) -> None:
    if words.pop(name, None) is not None:
        message = f"an awaited call takes none. {remedy}"
        raise ContractInvalid((Problem(field=name, message=message),))
