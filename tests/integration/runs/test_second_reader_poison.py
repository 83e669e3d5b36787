"""A row that has no exact JSON form is refused, and ends no worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime

from .runs_project import add_agent, edit_metadata, make_project, work_file


@pytest.mark.parametrize(
    "text",
    [
        '{"executionContractHash": NaN}',
        '{"executionContractHash": "\\ud800"}',
        '{"executionContractMaterial": {"randomnessSeed": 1e999}}',
        "[" * 100_000,
    ],
    ids=["nan", "surrogate", "infinite", "deep"],
)
def test_an_edited_row_stops_no_worker(tmp_path: Path, text: str) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        run = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        good = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        edit_metadata(project / ".actum", run.run_id, text)
        rt.runs.worker().drain()
        assert rt.runs.get(run.run_id).error_code in ("CONTRACT_MISMATCH", "UNSUPPORTED_CONTRACT")
        assert rt.runs.get(good.run_id).status.value == "complete"
