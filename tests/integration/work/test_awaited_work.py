"""`rt.aio.work`, `rt.aio.work_file` and `rt.aio.runs`: the blocking calls, and cancelling them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hostile.jail import sleeps

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "project")
    add_agent(folder, "echo one > one.txt", number=1)
    add_agent(folder, "echo two > two.txt", number=2)
    return folder


def graph(*items: dict[str, Any]) -> str:
    return json.dumps({"items": list(items)})


TWO = graph(item(id="one"), item(id="two", agent_id="agent-2", dependencies=["one"]))


def slow(project: Path, nap: str) -> None:
    add_agent(project, f"echo half > half.txt; sleep {nap}", number=2)


def nap_of(tmp_path: Path) -> str:
    return f"{1_300 + tmp_path.stat().st_ino % 7_000}.{tmp_path.stat().st_ino}"


async def until_asleep(nap: str) -> None:
    await asyncio.to_thread(sleeps, nap)


def test_awaited_work_is_the_blocking_work(project: Path) -> None:
    heard: list[str] = []

    async def main() -> None:
        aio = rt.aio
        rehearsed = await aio.runs.rehearse(TWO, environ={})
        assert [each.status.value for each in rehearsed.results.values()] == ["success"] * 2
        done = await aio.work_file(TWO, environ={}, on_event=lambda each: heard.append(each["at"]))
        assert done.status.value == "complete"
        assert [run.run_id for run in await aio.runs.list()] == [done.run_id]
        assert (await aio.runs.status(done.run_id))["status"] == "complete"
        single = await aio.work(item(id="three", description="Once more"))
        assert single.status.value == "success"
        queued = await aio.runs.submit(TWO, environ={})
        assert (await aio.runs.get(queued.run_id)).status.value == "queued"
        assert (await aio.runs.work(queued.run_id)).ended_at is not None

    with opened(project) as rt:
        asyncio.run(main())
    assert {"begun", "started", "ended"} <= set(heard)
    assert (project / "two.txt").read_text() == "two\n"


@pytest.mark.parametrize("way", ["work_file", "runs.work"])
def test_cancelling_the_task_cancels_the_run(project: Path, tmp_path: Path, way: str) -> None:
    nap = nap_of(tmp_path)
    slow(project, nap)

    async def main() -> None:
        if way == "work_file":
            task = asyncio.ensure_future(rt.aio.work_file(TWO, environ={}))
        else:
            run = await rt.aio.runs.submit(TWO, environ={})
            task = asyncio.ensure_future(rt.aio.runs.work(run.run_id))
        await until_asleep(nap)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (run,) = await rt.aio.runs.list()  # it has ended when the task has
        assert run.status.value == "cancelled"
        ends = [(step.item_id, str(step.status)) for step in rt.runs.ledger.steps(run.run_id)]
        assert ends == [("one", "success"), ("two", "interrupted")]
        assert not (project / "half.txt").exists()
        add_agent(project, "echo two > two.txt", number=2)
        done = await rt.aio.work_file(TWO, environ={})
        assert (done.run_id, done.status.value) == (run.run_id, "complete")

    with opened(project) as rt:
        asyncio.run(main())


def test_cancelling_the_task_ends_a_work_item(project: Path, tmp_path: Path) -> None:
    nap = nap_of(tmp_path)
    slow(project, nap)

    async def main() -> None:
        task = asyncio.ensure_future(rt.aio.work(item(id="two", agent_id="agent-2")))
        await until_asleep(nap)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with opened(project) as rt:
        asyncio.run(main())
        rows = rt.database.rows("SELECT status FROM work_runs WHERE item_id = 'two'")
    assert rows == [("failure",)]
    assert not (project / "half.txt").exists()


def test_closing_the_runtime_ends_what_is_awaited(project: Path, tmp_path: Path) -> None:
    nap = nap_of(tmp_path)
    slow(project, nap)

    async def main() -> None:
        task = asyncio.ensure_future(rt.aio.work_file(TWO, environ={}))
        await until_asleep(nap)
        await asyncio.to_thread(rt.aio.close)
        done = await task
        assert done.cancelled

    with opened(project) as rt:
        asyncio.run(main())


def test_a_rehearsal_denies_what_a_run_would(project: Path) -> None:
    source = graph(
        item(id="env", agent_id="agent-1"),
        item(id="many", agent_id="agent-2"),
        item(id="fits", agent_id="agent-3"),
    )
    add_agent(project, "echo A=1 > .env", number=1)
    add_agent(project, "touch a b c", number=2)
    add_agent(project, "touch c d", number=3)
    config = {"maxFilesPerStep": 2}
    with opened(project) as rt:
        told = rt.runs.rehearse(source, config=config, environ={})
        loose = rt.runs.rehearse(source, config={"allowEnvMutation": True}, environ={})
        done = rt.work_file(source.encode(), config={**config, "profile": "ci"})
    ends = {name: (end.status.value, end.reason) for name, end in told.results.items()}
    assert ends == {
        "env": ("denied", "restricted_env_file: .env"),
        "many": ("denied", "max_files_per_step: 3 > 2"),
        "fits": ("success", None),
    }
    assert {name: (end.status, end.reason) for name, end in done.results.items()} == ends
    assert [end.status.value for end in loose.results.values()] == ["success"] * 3
