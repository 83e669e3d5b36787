"""The awaitable twins are the calls themselves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.engine.project import create
from actum.settings import load
from actum.testing import FakeRunner, captured


def test_exec_execute_and_python_can_be_awaited_together(tmp_path: Path) -> None:
    create(tmp_path, RunnerKind.LOCAL, by="user:test", date="2026-01-16")
    runner = FakeRunner(lambda plan: captured(plan.stdin))
    settings = load(tmp_path / ".actum", {"LOGNAME": "test"})

    async def all_three(runtime: Runtime) -> list[Result]:
        shell = {"command": "sh", "stdin": "two", "working_directory": str(tmp_path)}
        return await asyncio.gather(
            runtime.aio.exec("shell", stdin="one", cwd=tmp_path),
            runtime.aio.execute({"tool_id": "TL-010", "inputs": shell}),
            runtime.aio.python("n + 1", params={"n": 1}),
        )

    with Runtime(settings, runners={RunnerKind.LOCAL: runner}) as runtime:
        first, second, third = asyncio.run(all_three(runtime))
    assert {each.outcome for each in (first, second, third)} == {Outcome.SUCCEEDED}
    assert first.result is not None
    assert second.result is not None
    assert third.result is not None
    assert (first.result.stdout, second.result.stdout) == ("one", "two")
    assert json.loads(third.result.stdout)["params"] == {"n": 1}
