"""A run is carried out in the folder that its seal names."""

from __future__ import annotations

from pathlib import Path

from actum import Runtime

from .runs_project import add_agent, make_project, work_file


def test_a_moved_project_carries_out_no_run_of_the_old_folder(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        run_id = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={}).run_id
    moved = project.rename(tmp_path / "other")
    with Runtime.open(moved, pool=False) as rt:
        rt.runs.worker().drain()
        run = rt.runs.get(run_id)
        assert (run.status.value, run.error_code) == ("failed", "WORKSPACE_MOVED")
        assert rt.runs.ledger.steps(run_id) == ()
    assert not (moved / "a.txt").exists()
