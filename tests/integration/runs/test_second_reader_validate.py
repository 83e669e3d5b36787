"""A verdict about another state is not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime
from actum.errors import Refused

from .runs_project import add_agent, make_project, work_file


def test_a_verdict_about_another_state_opens_no_gate(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo bad > code.txt")
    heavy = {"id": "t", "tool": "shell", "stdin": "grep -q good code.txt"}
    with Runtime.open(project, pool=False) as rt:
        run = rt.runs.submit(work_file(heavy=[heavy]), config={"profile": "ci"}, environ={})
        rt.runs.worker().drain()
        assert not rt.runs.validate(run.run_id)
        (project / "code.txt").write_text("good\n")
        with pytest.raises(Refused, match="not in the state"):
            rt.runs.validate(run.run_id)
        (project / "code.txt").write_text("bad\n")
        assert rt.runs.gate(run.run_id).document["reasonCodes"] == ["RUN_VALIDATION_FAILED"]
