"""A cancelled run stays cancelled, whatever happens to its worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime
from actum.evidence.owner import current_owner

from .runs_project import add_agent, make_project, work_file


@pytest.mark.parametrize("end", ["killed", "leaving"])
def test_a_cancelled_run_is_not_queued_again(tmp_path: Path, end: str) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        run = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        claimed = rt.runs.ledger.claim(run, current_owner())
        assert claimed is not None
        rt.runs.cancel(run.run_id)
        if end == "killed":
            rt.runs.ledger.bring_back(claimed, lost_after=5)
        else:
            rt.runs.ledger.hand_over(claimed)
        now = rt.runs.get(run.run_id)
        assert (now.status.value, now.error_code) == ("cancelled", "CANCELLED")
        assert now.ended_at is not None
        rt.runs.worker().drain()
        assert not (project / "a.txt").exists()
