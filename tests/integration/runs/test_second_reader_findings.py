"""What a validator prints neither stops a run nor its correction."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime
from actum.errors import ContractInvalid
from actum.evidence.owner import current_owner
from actum.runs.model import StepKind
from actum.runs.validator_findings import findings_of, signature_of
from actum.value import replace

from .runs_project import add_agent, item, make_project, work_file

LINT = {"id": "l", "tool": "shell", "stdin": "grep -q good code.txt"}
MANY = (
    "grep -q good code.txt || { python3 -c \"import json; print(json.dumps([{'code': 'E%d' % i,"
    " 'path': 'x' * 40} for i in range(800)]))\"; exit 1; }"
)


@pytest.mark.parametrize("out", ["[" * 200_000, '[{"code": "\\ud800", "path": "\\udfff"}]'])
def test_any_output_has_findings_with_a_signature(out: str) -> None:
    assert signature_of(findings_of("v", 1, out))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo bad > code.txt", number=1)
    add_agent(folder, "echo good > code.txt", number=7)
    return folder


def test_many_findings_fit_into_a_correction(project: Path) -> None:
    source = work_file(light=[{**LINT, "stdin": MANY}], corrector="agent-7")
    with Runtime.open(project, pool=False) as rt:
        run = rt.runs.submit(source, config={"profile": "full"}, environ={})
        rt.runs.worker().drain()
        assert rt.runs.get(run.run_id).status.value == "complete"


def test_a_step_that_never_began_has_no_files_to_correct(project: Path) -> None:
    with Runtime.open(project, pool=False) as rt:
        source = work_file(light=[LINT], corrector="agent-7")
        run = rt.runs.submit(source, config={"profile": "full"}, environ={})
        claimed = rt.runs.ledger.claim(run, current_owner())
        assert claimed is not None
        performer = rt.runs.performer(lambda _event: None)
        step = performer._step(claimed, 0, StepKind.ITEM, "work-item-1", 1)
        never = replace(step, work_run_id="00000000-0000-0000-0000-000000000001")
        rt.runs.ledger.start_step(claimed, never)
        rt.runs.ledger.bring_back(claimed, lost_after=5)
        rt.runs.worker().drain()
        assert rt.runs.get(run.run_id).status.value == "complete"


def test_an_id_without_room_for_its_corrections_is_refused(project: Path) -> None:
    with Runtime.open(project, pool=False) as rt, pytest.raises(ContractInvalid):
        rt.runs.submit(work_file(item(id="a" * 126), corrector="agent-7"), environ={})
