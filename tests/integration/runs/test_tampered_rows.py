"""Every column of a run's row is edited while it is queued, failed, and carried out.

No edit makes a worker do anything else than the sealed contract and work file say: the run ends as
it would have, or is refused, or waits. (`tests/tamper` shows that `actum verify` names each edit.)
"""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.terminal import COMMAND
from actum import Runtime
from actum.errors import ActumError
from actum.runs.model import RUN_COLUMNS

from .runs_project import add_agent, item, make_project, work_file

#: The key of the row: another one names a run that does not exist.
COLUMNS = [name for name in RUN_COLUMNS if name != "run_id"]
WORDS = {
    "status": "complete",
    "validation_status": "passed",
    "metadata": "{}",
    "source": work_file(item(agent_id="agent-9")),
    "plan": work_file(item(agent_id="agent-9")),
    "workspace": "/",
}
NUMBERS = {"revision": 2, "epoch": 99, "fence": 99, "priority": 99, "resumed_at": 99}


def edit(rt: Runtime, run_id: str, column: str) -> Any:
    value = NUMBERS.get(column, WORDS.get(column, "edited"))
    with sqlite3.connect(rt.settings.home / "actum.db", timeout=30) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(
            f"UPDATE agent_runs SET {column} = ? WHERE run_id = ?",
            (value, run_id),
        )
    connection.close()
    return value


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo sealed >> sealed.txt", number=1)
    add_agent(folder, "echo forged > forged.txt", number=9)
    with Runtime.open(folder, pool=False) as runtime:
        yield runtime


def harmless(rt: Runtime) -> None:
    """What the sealed work file says was done at most once, and nothing else."""
    root = rt.settings.root
    assert not (root / "forged.txt").exists()
    done = root / "sealed.txt"
    assert not done.exists() or done.read_text() == "sealed\n"


@pytest.mark.req("003-103")
def test_an_edited_queued_run_does_what_was_sealed_or_nothing(rt: Runtime) -> None:
    for column in COLUMNS:
        (rt.settings.root / "sealed.txt").unlink(missing_ok=True)
        run_id = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={}).run_id
        edit(rt, run_id, column)
        rt.runs.worker().drain()
        harmless(rt)
        if column in ("metadata", "seal", "source", "workspace", "revision"):
            assert rt.runs.get(run_id).status.value == "failed", column
            assert rt.runs.ledger.steps(run_id) == (), column


@pytest.mark.req("003-103")
def test_an_edited_failed_run_is_continued_under_what_was_sealed_or_refused(rt: Runtime) -> None:
    add_agent(rt.settings.root, "test -e go && echo sealed >> sealed.txt", number=1)
    for column in COLUMNS:
        (rt.settings.root / "sealed.txt").unlink(missing_ok=True)
        (rt.settings.root / "go").unlink(missing_ok=True)
        run_id = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={}).run_id
        rt.runs.worker().drain()
        assert rt.runs.get(run_id).status.value == "failed"
        edit(rt, run_id, column)
        (rt.settings.root / "go").touch()
        try:
            rt.runs.resume(run_id)
        except ActumError:
            assert column in ("status", "metadata", "seal", "source", "workspace", "revision")
            continue
        rt.runs.worker().drain()
        harmless(rt)


@pytest.mark.parametrize("column", ["fence", "epoch", "status", "plan", "metadata", "source"])
def test_an_edited_running_run_is_carried_on_as_sealed_or_given_up(
    rt: Runtime, column: str
) -> None:
    root = rt.settings.root
    add_agent(root, "sleep 3; echo sealed >> sealed.txt", number=1)
    run_id = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={}).run_id
    worker = subprocess.Popen([*COMMAND, "worker", "--once"], cwd=root, stderr=subprocess.DEVNULL)
    try:
        while not rt.runs.ledger.steps(run_id):
            time.sleep(0.05)
        edit(rt, run_id, column)
        assert worker.wait(120) == 0
    finally:
        worker.kill()
        worker.wait()
    harmless(rt)
    if column in ("fence", "epoch", "status"):
        assert not (root / "sealed.txt").exists(), "a claim that was lost committed"
