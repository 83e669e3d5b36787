"""The awaitable twins are the calls themselves, and what waits needs no thread."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.capture.model import Capture
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.project import create
from actum.settings import load
from actum.testing import FakeRunner, captured


@contextmanager
def opened(
    folder: Path, answer: Callable[[Plan], Capture], **settings: Any
) -> Iterator[tuple[Runtime, FakeRunner]]:
    create(folder, RunnerKind.LOCAL, by="user:test", date="2026-01-16")
    runner = FakeRunner(answer)
    found = dataclasses.replace(load(folder / ".actum", {"LOGNAME": "test"}), **settings)
    with Runtime(found, runners={RunnerKind.LOCAL: runner}) as runtime:
        yield runtime, runner


class Gate:
    """A tool that ends when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self.order: list[str] = []
        self._guard = threading.Lock()

    def __call__(self, plan: Plan) -> Capture:
        with self._guard:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(plan.stdin.decode())
        assert self.open.wait(60)
        with self._guard:
            self.inside -= 1
        return captured(plan.stdin)


def outcomes(runtime: Runtime) -> Counter[tuple[str, str | None]]:
    return Counter(
        (row[0], row[1]) for row in runtime.database.rows("SELECT state, outcome FROM executions")
    )


def verifies(runtime: Runtime) -> bool:
    return all(finding.passed for finding in runtime.verifier.verify_all())


async def until(condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError


def test_exec_execute_and_python_can_be_awaited_together(tmp_path: Path) -> None:
    async def all_three(runtime: Runtime) -> list[Result]:
        shell = {"command": "sh", "stdin": "two", "working_directory": str(tmp_path)}
        return await asyncio.gather(
            runtime.aio.exec("shell", stdin="one", cwd=tmp_path),
            runtime.aio.execute({"tool_id": "TL-010", "inputs": shell}),
            runtime.aio.python("n + 1", params={"n": 1}),
        )

    with opened(tmp_path, lambda plan: captured(plan.stdin)) as (runtime, _runner):
        first, second, third = asyncio.run(all_three(runtime))
    assert {each.outcome for each in (first, second, third)} == {Outcome.SUCCEEDED}
    assert first.result is not None
    assert second.result is not None
    assert third.result is not None
    assert (first.result.stdout, second.result.stdout) == ("one", "two")
    assert json.loads(third.result.stdout)["params"] == {"n": 1}


@pytest.mark.req("004-76")
def test_a_thousand_that_wait_need_few_threads_and_no_descriptors(tmp_path: Path) -> None:
    gate = Gate()
    cap, many = 3, 1_000

    async def ask(runtime: Runtime) -> list[Result]:
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        tasks = [
            asyncio.create_task(runtime.aio.exec("shell", stdin=str(n), cwd=tmp_path))
            for n in range(many)
        ]
        await until(lambda: runtime.services.concurrency.waiting == many - cap)
        # One per place, the desk, and the thread that makes layers ahead.
        assert threading.active_count() <= threads + cap + 2
        assert len(os.listdir("/proc/self/fd")) <= files + 10
        gate.open.set()
        return await asyncio.gather(*tasks)

    with opened(tmp_path, gate, max_concurrent=cap) as (runtime, runner):
        results = asyncio.run(ask(runtime))
        assert outcomes(runtime) == {("FINAL", "SUCCEEDED"): many}
        assert verifies(runtime)
    assert [each.result.stdout for each in results if each.result] == [str(n) for n in range(many)]
    assert gate.most == cap
    assert len(runner.plans) == many


def test_turns_are_taken_between_awaiting_and_blocking_callers(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> None:
        words: dict[str, Any] = {"cwd": tmp_path, "requested_by": "user:greedy"}
        tasks = [
            asyncio.create_task(runtime.aio.exec("shell", stdin=f"g{n}", **words))
            for n in range(20)
        ]
        await until(lambda: runtime.services.concurrency.waiting == 19)
        words["requested_by"] = "user:modest"
        blocking = threading.Thread(target=lambda: runtime.exec("shell", stdin="m", **words))
        blocking.start()
        await until(lambda: runtime.services.concurrency.waiting == 20)
        gate.open.set()
        await asyncio.gather(*tasks)
        blocking.join()

    with opened(tmp_path, gate, max_concurrent=1) as (runtime, _runner):
        asyncio.run(ask(runtime))
    assert gate.order.index("m") == 2  # behind the one that ran, and one more of the other caller


def test_a_full_queue_is_a_refusal_with_a_receipt_and_nothing_ran(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> list[Result]:
        tasks = [
            asyncio.create_task(runtime.aio.exec("shell", stdin=str(n), cwd=tmp_path))
            for n in range(10)
        ]
        await until(lambda: sum(task.done() for task in tasks) == 6)
        blocking = runtime.exec("shell", stdin="now", cwd=tmp_path)
        gate.open.set()
        return [blocking, *await asyncio.gather(*tasks)]

    with opened(tmp_path, gate, max_concurrent=1, max_queued=3) as (runtime, runner):
        results = asyncio.run(ask(runtime))
        assert Counter(each.outcome for each in results) == {
            Outcome.SUCCEEDED: 4,
            Outcome.REJECTED: 7,
        }
        refused = [each for each in results if each.outcome is Outcome.REJECTED]
        for each in refused:
            assert each.reason_codes == ("QUEUE_FULL",)
            assert each.result is None
            assert Path(each.receipt_path).exists()
            assert "limits.max_queued" in each.violations[0].message
        assert len(runner.plans) == 4
        assert verifies(runtime)


def test_waiting_too_long_is_a_refusal_too(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> list[Result]:
        first = asyncio.create_task(runtime.aio.exec("shell", stdin="1", cwd=tmp_path))
        await until(lambda: gate.inside)
        late = await runtime.aio.exec("shell", stdin="2", cwd=tmp_path, queue_s=0.05)
        blocking = await asyncio.to_thread(
            runtime.exec, "shell", stdin="3", cwd=tmp_path, queue_s=0.05
        )
        gate.open.set()
        return [late, blocking, await first]

    with opened(tmp_path, gate, max_concurrent=1) as (runtime, runner):
        late, blocking, first = asyncio.run(ask(runtime))
        for each in (late, blocking):
            assert (each.outcome, each.reason_codes) == (Outcome.REJECTED, ("QUEUE_TIMEOUT",))
        assert first.ok
        assert len(runner.plans) == 1
        assert verifies(runtime)


def test_cancelling_a_task_that_waits_is_recorded_and_starts_nothing(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> None:
        first = asyncio.create_task(runtime.aio.exec("shell", stdin="1", cwd=tmp_path))
        await until(lambda: gate.inside)
        others = [
            asyncio.create_task(runtime.aio.exec("shell", stdin=str(n), cwd=tmp_path))
            for n in range(50)
        ]
        for task in others[
            :25
        ]:  # some at once, some while they are looked at, some while they wait
            task.cancel()
        await until(lambda: runtime.services.concurrency.waiting)
        for task in others[25:]:
            task.cancel()
            await asyncio.sleep(0.001)
        ended = await asyncio.gather(*others, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert runtime.services.concurrency.waiting == 0
        gate.open.set()
        assert (await first).ok
        assert (await runtime.aio.exec("shell", stdin="next", cwd=tmp_path)).ok

    with opened(tmp_path, gate, max_concurrent=1) as (runtime, runner):
        asyncio.run(ask(runtime))
        # A task that was cancelled before its first step never asked.
        assert outcomes(runtime)["FINAL", "CANCELLED"] == 25
        assert outcomes(runtime)["FINAL", "SUCCEEDED"] == 2
        assert [plan.stdin for plan in runner.plans] == [b"1", b"next"]
        assert verifies(runtime)


def test_a_refusal_does_not_wait_for_a_place(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> Result:
        first = asyncio.create_task(runtime.aio.exec("shell", stdin="1", cwd=tmp_path))
        await until(lambda: gate.inside)
        refused = await runtime.aio.exec("nonsense", cwd=tmp_path)
        gate.open.set()
        await first
        return refused

    with opened(tmp_path, gate, max_concurrent=1) as (runtime, _runner):
        assert asyncio.run(ask(runtime)).reason_codes == ("TOOL_UNKNOWN",)


def test_what_changed_while_it_waited_is_judged_again(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> list[Result]:
        first = asyncio.create_task(runtime.aio.exec("shell", stdin="1", cwd=tmp_path))
        await until(lambda: gate.inside)
        awaiting = asyncio.create_task(runtime.aio.exec("shell", stdin="2", cwd=tmp_path))
        blocking = asyncio.create_task(
            asyncio.to_thread(runtime.exec, "shell", stdin="3", cwd=tmp_path)
        )
        await until(lambda: runtime.services.concurrency.waiting == 2)
        (tmp_path / "tools" / "shell" / "README.md").write_text("changed")
        gate.open.set()
        return [await first, await awaiting, await blocking]

    with opened(tmp_path, gate, max_concurrent=1) as (runtime, runner):
        first, *later = asyncio.run(ask(runtime))
        assert first.ok
        assert [each.reason_codes for each in later] == [("TOOL_CHANGED",)] * 2
        assert len(runner.plans) == 1


def test_a_fault_is_raised_where_it_is_awaited_and_frees_the_place(tmp_path: Path) -> None:
    def broken(_plan: Plan) -> Capture:
        raise ZeroDivisionError

    async def ask(runtime: Runtime) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await runtime.aio.exec("shell", stdin="1", cwd=tmp_path)

    with opened(tmp_path, broken, max_concurrent=1) as (runtime, _runner):
        asyncio.run(ask(runtime))
        assert runtime.services.concurrency.free == 1
        assert outcomes(runtime) == {("FINAL", "EXCEPTION"): 3}


def test_closing_ends_what_is_awaited(tmp_path: Path) -> None:
    gate = Gate()

    async def ask(runtime: Runtime) -> None:
        tasks = [
            asyncio.create_task(runtime.aio.exec("shell", stdin=str(n), cwd=tmp_path))
            for n in range(5)
        ]
        await until(lambda: runtime.services.concurrency.waiting == 4)
        closing = asyncio.create_task(asyncio.to_thread(runtime.aio.close))
        await until(lambda: runtime.services.concurrency.waiting == 0)
        gate.open.set()
        await closing
        ended = await asyncio.gather(*tasks)
        assert [each.outcome for each in ended] == [Outcome.SUCCEEDED] + [Outcome.CANCELLED] * 4

    before = threading.active_count()
    with opened(tmp_path, gate, max_concurrent=1) as (runtime, _runner):
        asyncio.run(ask(runtime))
    assert threading.active_count() <= before


def test_acts_are_awaited_without_a_thread_each(tmp_path: Path) -> None:
    async def ask(runtime: Runtime) -> list[object]:
        before = threading.active_count()
        request = {"action": "noop", "payload": {}}
        tasks = [asyncio.create_task(runtime.aio.act(request)) for _ in range(100)]
        most = before
        while not all(task.done() for task in tasks):
            most = max(most, threading.active_count())
            await asyncio.sleep(0.001)
        assert most <= before + 2 + 2  # the workers, and what the pool itself may need
        return [runtime.act_value(each) for each in await asyncio.gather(*tasks)]

    def answer(plan: Plan) -> Capture:
        return captured(plan.stdin)

    with opened(tmp_path, answer, max_concurrent=2) as (runtime, _runner):
        values = asyncio.run(ask(runtime))
    assert len(values) == 100
