"""Async twins of work items and durable runs: `rt.aio.work`, `rt.aio.work_file`, `rt.aio.runs`.

Each awaited call has a thread, because it starts processes and waits for them. Cancelling the task
ends the call as Ctrl-C ends its blocking twin, and waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from actum.contract.model import Json
from actum.errors import Refused

if TYPE_CHECKING:
    from actum.runs.durable_runs import Runs
    from actum.runs.model import Run
    from actum.runs.perform import OnEvent
    from actum.runs.rehearsal import Rehearsal
    from actum.runs.work_done import WorkDone
    from actum.work.model import RunResult, WorkItem
    from actum.work.work_items import WorkItems

_T = TypeVar("_T")
#: Awaited calls at the same time; more wait for one of them.
_MOST = 64


class RunCalls(Protocol):
    @property
    def work_items(self) -> WorkItems: ...
    @property
    def runs(self) -> Runs: ...


class Calls:
    """Blocking calls in threads, each with a function that ends it early."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MOST, "actum-awaited")
        self._ends = ThreadPoolExecutor(1, "actum-awaited-end")
        self._guard = threading.Lock()
        self._live: dict[Future[Any], Callable[[], None]] = {}

    async def wait_for(self, call: Callable[[], _T], end: Callable[[], None]) -> _T:
        """Its result. When the task is cancelled, `end` is called, and the call has ended."""
        work = self._threads.submit(call)
        with self._guard:
            self._live[work] = end
        try:
            return await asyncio.shield(asyncio.wrap_future(work))
        except asyncio.CancelledError:
            if not work.cancel():
                self._ends.submit(end)
                await until_done(work)
            raise
        finally:
            with self._guard:
                self._live.pop(work, None)

    def close(self) -> None:
        """End everything that is awaited, then stop the threads."""
        with self._guard:
            live = dict(self._live)
        for work, end in live.items():
            if not work.cancel():
                end()
        self._threads.shutdown()
        self._ends.shutdown()


class AsyncRuns:
    """`rt.runs`, awaitable."""

    def __init__(self, calls: Calls, runtime: RunCalls) -> None:
        self._calls = calls
        self._runtime = runtime

    async def submit(self, source: str | bytes | Path, **words: Any) -> Run:
        return await self._whole(lambda: self._runtime.runs.submit(source, **words))

    async def get(self, run_id: str) -> Run:
        return await self._whole(lambda: self._runtime.runs.get(run_id))

    async def status(self, run_id: str) -> dict[str, Json]:
        return await self._whole(lambda: self._runtime.runs.status(run_id))

    async def list(self, **words: Any) -> tuple[Run, ...]:
        return await self._whole(lambda: self._runtime.runs.list(**words))

    async def resume(self, run_id: str, **words: Any) -> Run:
        return await self._whole(lambda: self._runtime.runs.resume(run_id, **words))

    async def cancel(self, run_id: str, **words: Any) -> Run:
        return await self._whole(lambda: self._runtime.runs.cancel(run_id, **words))

    async def work(self, run_id: str, *, on_event: OnEvent = lambda _event: None) -> Run:
        """As `rt.runs.work`. Cancelling the task cancels the run."""
        cancelling = _Cancelling(self._runtime, on_event)
        cancelling.of(run_id)
        call = partial(self._runtime.runs.work, run_id, on_event=on_event)
        return await self._calls.wait_for(call, cancelling.cancel)

    async def rehearse(self, source: str | bytes | Path, **words: Any) -> Rehearsal:
        from actum.work.item_process import Stop

        stop = Stop()
        call = partial(self._runtime.runs.rehearse, source, stop=stop, **words)
        return await self._calls.wait_for(call, stop.stop)

    async def _whole(self, call: Callable[[], _T]) -> _T:
        """A call that is short: when cancelled, it finishes."""
        return await self._calls.wait_for(call, lambda: None)


async def work(
    calls: Calls, runtime: RunCalls, item: WorkItem | Mapping[str, Any] | str | bytes | Path
) -> RunResult:
    """One work item. When cancelled, its process is ended; its end is on record."""
    from actum.work.item_process import Stop

    stop = Stop()
    return await calls.wait_for(lambda: runtime.work_items.run(item, stop=stop), stop.stop)


async def work_file(
    calls: Calls,
    runtime: RunCalls,
    source: str | bytes | Path,
    *,
    on_event: OnEvent = lambda _event: None,
    **words: Any,
) -> WorkDone:
    """A work file as a durable run. When cancelled, the run is cancelled and can be continued."""
    cancelling = _Cancelling(runtime, on_event)
    return await calls.wait_for(
        lambda: runtime.runs.in_foreground(source, on_event=cancelling.hear, **words),
        cancelling.cancel,
    )


class _Cancelling:
    """Cancels a run whose id is known once it has begun."""

    def __init__(self, runtime: RunCalls, on_event: OnEvent) -> None:
        self._runtime = runtime
        self._on_event = on_event
        self._guard = threading.Lock()
        self._run_id: str | None = None
        self._wanted = False

    def of(self, run_id: str) -> None:
        with self._guard:
            self._run_id = run_id
            wanted = self._wanted
        if wanted:
            self._do(run_id)

    def hear(self, event: Mapping[str, Any]) -> None:
        if event["at"] in ("begun", "continuing"):
            self.of(event["run"])
        self._on_event(event)

    def cancel(self) -> None:
        with self._guard:
            self._wanted = True
            run_id = self._run_id
        if run_id is not None:
            self._do(run_id)

    def _do(self, run_id: str) -> None:
        with contextlib.suppress(Refused):  # it has ended already
            self._runtime.runs.cancel(run_id)


async def until_done(work: Future[_T]) -> None:
    """Wait for the end of a call, however often this task is cancelled meanwhile."""
    ended = asyncio.ensure_future(asyncio.wrap_future(work))
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended])
    if not ended.cancelled():
        ended.exception()  # retrieved, so that asyncio does not log it as lost
