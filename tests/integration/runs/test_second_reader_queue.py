"""A run that a process waits for is found behind any number of others."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from actum import Runtime

from .runs_project import add_agent, make_project, work_file


def test_a_run_is_found_behind_many_others(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        for _ in range(16):
            rt.runs.submit(work_file(), config={"profile": "ci"}, priority=1, environ={})
        run = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        assert [each.run_id for each in rt.runs.worker()._claimed(1, run.run_id)] == [run.run_id]


def test_runs_of_another_version_hide_none_of_this_one(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        for _ in range(16):
            rt.runs.submit(work_file(), config={"profile": "ci"}, priority=1, environ={})
        with sqlite3.connect(project / ".actum/actum.db") as connection:
            connection.execute("UPDATE agent_runs SET queue = 'runs.s9'")
        connection.close()
        run = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        assert [each.run_id for each in rt.runs.worker()._claimed(1)] == [run.run_id]
