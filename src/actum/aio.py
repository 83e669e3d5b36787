"""Async twins of `Runtime`'s calls."""

from __future__ import annotations

import asyncio
from typing import Any

from actum.engine.result import Result
from actum.runners.base import Cancel
from actum.wiring import AnyContract, Runtime


class AsyncRuntime:
    """`await rt.aio.exec(...)`. Cancelling the task cancels the execution and waits for its end."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def exec(self, tool: str, *arguments: str, **words: Any) -> Result:
        return await self._run(self._runtime.exec, tool, *arguments, **words)

    async def execute(self, contract: AnyContract, **words: Any) -> Result:
        return await self._run(self._runtime.execute, contract, **words)

    async def _run(self, function: Any, *arguments: Any, **words: Any) -> Result:
        cancel = Cancel()
        work = asyncio.ensure_future(
            asyncio.to_thread(function, *arguments, cancel=cancel, **words)
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancel.cancel()
            await work  # nothing of it is left running when the caller goes on
            raise
        finally:
            if work.done():
                cancel.close()
