"""A run whose item was undone is not continued to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime
from actum.errors import Refused

from .runs_project import add_agent, item, make_project, work_file


def test_a_run_with_an_undone_item_is_not_continued(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo one > one.txt", number=1)
    add_agent(project, "exit 1", number=2)
    source = work_file(item(id="one"), item(id="two", agent_id="agent-2"))
    with Runtime.open(project, pool=False) as rt:
        run_id = rt.runs.submit(source, config={"profile": "ci"}, environ={}).run_id
        rt.runs.worker().drain()
        done = rt.runs.ledger.steps(run_id)[0]
        undo = rt.runs.work_items().undo(str(done.receipt_id))
        with pytest.raises(Refused, match="one of the run .* was undone"):
            rt.runs.resume(run_id)
        rt.runs.work_items().undo(str(undo.receipt_id))
        rt.runs.resume(run_id)
