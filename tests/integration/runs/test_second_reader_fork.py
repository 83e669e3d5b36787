"""A fork of a run that left a step open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.work.work_items import WorkItems, WorkLost

from .runs_project import add_agent, item, make_project, work_file


def test_a_fork_numbers_its_steps_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo one > one.txt", number=1)
    add_agent(project, "sleep 5; echo two > two.txt", number=2)
    source = work_file(item(id="one"), item(id="two", agent_id="agent-2"))
    original = WorkItems.run

    def lost(self: WorkItems, planned: Any, **more: Any) -> Any:
        if planned.id == "one":
            raise WorkLost("gone", remedy="")
        return original(self, planned, **more)

    with Runtime.open(project, pool=False) as rt:
        run_id = rt.runs.submit(source, config={"profile": "ci"}, environ={}).run_id
        with monkeypatch.context() as broken:
            broken.setattr(WorkItems, "run", lost)
            rt.runs.worker().drain()
        left = rt.runs.ledger.steps(run_id)
        assert any(step.is_open for step in left[:-1])
        fork = rt.runs.resume(run_id, fork=True)
        rt.runs.worker().drain()
        assert rt.runs.status(fork.run_id)["error"] is None
        assert rt.runs.get(fork.run_id).status.value == "complete"
