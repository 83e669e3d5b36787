"""Async twins of a runtime's calls. Built by wiring, which owns the runtime."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actum.engine.result import Result
from actum.runners.base import Cancel


@dataclass(frozen=True, slots=True)
class AsyncRuntime:
    """`await rt.aio.exec(...)`. Cancelling the task cancels the execution and waits for its end."""

    _exec: Callable[..., Result]
    _execute: Callable[..., Result]
    _python: Callable[..., Result]

    async def exec(self, tool: str, *arguments: str, **words: Any) -> Result:
        return await _run(self._exec, tool, *arguments, **words)

    async def execute(self, contract: Any, **words: Any) -> Result:
        return await _run(self._execute, contract, **words)

    async def python(self, code: str, **words: Any) -> Result:
        return await _run(self._python, code, **words)


async def _run(function: Callable[..., Result], *arguments: Any, **words: Any) -> Result:
    cancel = Cancel()
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, cancel=cancel, **words))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancel.cancel()
        # Nothing of it is left running when the caller goes on, however often it is cancelled.
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        work.exception()  # looked at, so that asyncio does not call it lost
        raise
    finally:
        cancel.close()
