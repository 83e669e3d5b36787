"""`on_output` of `rt.aio`: a coroutine function is awaited, in order, and holds no deadline."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Iterator
from typing import Any

import pytest

from acceptance.terminal import alive, unique_nap
from actum import Outcome, Runtime

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary() as opened:
        yield opened


def test_every_chunk_is_awaited_in_order_before_the_result_comes(rt: Runtime) -> None:
    heard: list[tuple[str, bytes]] = []
    inside = most = 0

    async def hear(stream: str, content: bytes) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        heard.append((stream, content))
        inside -= 1

    async def ask() -> None:
        script = "for n in 1 2 3 4 5; do echo $n; sleep 0.05; done; echo end >&2"
        result = await rt.aio.exec("shell", stdin=script, on_output=hear)
        assert result.ok
        assert b"".join(each for name, each in heard if name == "stdout") == b"1\n2\n3\n4\n5\n"
        assert b"".join(each for name, each in heard if name == "stderr") == b"end\n"
        heard.clear()
        assert (await rt.aio.python("print('said')\n6 * 7", on_output=hear)).output == 42
        assert b"".join(each for _, each in heard) == b"said\n"
        heard.clear()
        async with rt.aio.python_session() as session:
            await session.run("print('kept')", on_output=hear)
        assert b"".join(each for _, each in heard) == b"kept\n"
        heard.clear()
        # A plain function that returns a coroutine is awaited too.
        await rt.aio.exec("shell", stdin="echo 1", on_output=lambda name, each: hear(name, each))
        assert heard == [("stdout", b"1\n")]

    asyncio.run(ask())
    assert most == 1


def test_the_tool_waits_for_a_slow_listener(rt: Runtime) -> None:
    """More than a pipe holds: the tool is still writing when the first chunk is being awaited."""
    size = 4 * 1_048_576
    total = 0
    largest = 0

    async def hear(_stream: str, content: bytes) -> None:
        nonlocal total, largest
        await asyncio.sleep(0.001)
        total += len(content)
        largest = max(largest, len(content))

    async def ask() -> Any:
        return await rt.aio.exec("shell", stdin=f"head -c {size} /dev/zero", on_output=hear)

    result = asyncio.run(ask())
    assert result.ok
    assert total == size
    assert largest <= 1_048_576
    assert result.streams["stdout"].bytes == size


def test_an_error_of_the_listener_ends_the_tool_and_is_raised(rt: Runtime) -> None:
    class OfTheListener(Exception):
        pass

    async def fail(_stream: str, _content: bytes) -> None:
        await asyncio.sleep(0)
        raise OfTheListener

    async def cancelled(_stream: str, _content: bytes) -> None:
        raise asyncio.CancelledError

    async def ask(listener: Any) -> None:
        await rt.aio.exec("shell", stdin="echo 1; sleep 60", on_output=listener)

    began = time.monotonic()
    with pytest.raises(OfTheListener):
        asyncio.run(ask(fail))
    with pytest.raises(RuntimeError, match="on_output was cancelled"):
        asyncio.run(ask(cancelled))
    assert time.monotonic() - began < 50  # the tools slept for 60 s each
    rows = rt.database.rows("SELECT outcome FROM executions ORDER BY rowid DESC LIMIT 2")
    assert [row[0] for row in rows] == ["EXCEPTION", "EXCEPTION"]


def test_cancelling_the_task_ends_a_listener_that_never_returns(rt: Runtime) -> None:
    events: list[str] = []

    async def ask() -> None:
        called = asyncio.Event()

        async def wait(_stream: str, _content: bytes) -> None:
            called.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append("cancelled")
                raise

        call = rt.aio.exec("shell", stdin="echo 1; sleep 60", on_output=wait)
        task = asyncio.create_task(call)
        await called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(ask(), 50))
    assert events == ["cancelled"]


@pytest.mark.parametrize("awaited", [True, False], ids=["awaited", "plain"])
def test_a_listener_that_does_not_return_does_not_hold_the_deadline(
    rt: Runtime, awaited: bool
) -> None:
    nap = unique_nap()
    seen: list[bool] = []

    def until(running: bool) -> bool:
        deadline = time.monotonic() + 50
        while bool(alive(nap)) != running and time.monotonic() < deadline:
            time.sleep(0.05)
        return bool(alive(nap)) == running

    def look(_stream: str, _content: bytes) -> None:
        """Returns only once the tool has ended."""
        seen.extend((until(True), until(False)))

    async def looking(stream: str, content: bytes) -> None:
        await asyncio.to_thread(look, stream, content)

    words: dict[str, Any] = {"stdin": f"echo 1; exec sleep {nap}", "timeout": 1}
    if awaited:
        result = asyncio.run(_awaited(rt, on_output=looking, **words))
    else:
        result = rt.exec("shell", on_output=look, **words)
    assert seen == [True, True]
    assert result.outcome is Outcome.TIMED_OUT


async def _awaited(rt: Runtime, **words: Any) -> Any:
    return await rt.aio.exec("shell", **words)


def test_the_listener_has_the_context_of_the_task(rt: Runtime) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    seen: list[str] = []

    async def hear(_stream: str, _content: bytes) -> None:
        seen.append(request.get("none"))

    async def ask() -> None:
        request.set("r-7")
        await rt.aio.exec("shell", stdin="echo 1", on_output=hear)

    asyncio.run(ask())
    assert seen == ["r-7"]


def test_an_option_is_kept_while_a_call_waits_for_a_slot(tmp_path: Any) -> None:
    """A call that had to wait is started again from its contract: with its listener, and with what
    is to become of its changes."""
    heard: list[bytes] = []

    async def hear(_stream: str, content: bytes) -> None:
        heard.append(content)

    async def ask(rt: Runtime) -> list[Any]:
        rt.settings.root.joinpath("here").mkdir()
        words: dict[str, Any] = {"cwd": rt.settings.root / "here", "changes": "discard"}
        many = rt.services.concurrency.count * 2
        return await asyncio.gather(
            *(
                rt.aio.exec("shell", stdin=f"echo {n} > f{n}; echo {n}", on_output=hear, **words)
                for n in range(many)
            )
        )

    with Runtime.temporary() as rt:
        results = asyncio.run(ask(rt))
        assert all(each.ok for each in results)
        assert len(heard) == len(results)
        assert {each.workspace.state for each in results} == {"discarded"}
        assert [*rt.settings.root.joinpath("here").iterdir()] == []
