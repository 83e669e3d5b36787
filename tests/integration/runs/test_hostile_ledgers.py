"""What a second, hostile reader of durable runs tried."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.errors import ContractInvalid, Refused
from actum.evidence.owner import current_owner
from actum.runs.model import StepKind
from actum.runs.validator_findings import findings_of, signature_of
from actum.value import replace
from actum.work.work_items import WorkItems, WorkLost

from .runs_project import add_agent, edit_metadata, item, make_project, work_file


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


def test_an_item_of_a_lost_claim_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    # Longer than the item takes; the watcher is asked to end after this wait.
    monkeypatch.setattr("actum.runs.carry_out._LOOK_EVERY_S", 60)
    told: list[str] = []

    def on_event(event: Mapping[str, Any]) -> None:
        told.append(event["at"])
        if event["at"] == "called":
            with sqlite3.connect(project / ".actum/actum.db") as connection:
                connection.execute("UPDATE agent_runs SET fence = fence + 1")
            connection.close()

    with Runtime.open(project, pool=False) as rt:
        rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        rt.runs.worker(on_event=on_event).drain()
    assert "fenced" in told
    assert not (project / "a.txt").exists()


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


def test_a_fork_numbers_its_steps_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo one > one.txt", number=1)
    add_agent(project, "sleep 5; echo two > two.txt", number=2)
    source = work_file(item(id="one"), item(id="two", agent_id="agent-2"))
    original = WorkItems.run_or_hold

    def lost(self: WorkItems, planned: Any, *ids: str, **more: Any) -> Any:
        if planned.id == "one":
            while len(rt.runs.ledger.steps(run_id)) < 2:
                time.sleep(0.02)
            raise WorkLost("gone", remedy="")
        return original(self, planned, *ids, **more)

    with Runtime.open(project, pool=False) as rt:
        run_id = rt.runs.submit(source, config={"profile": "ci"}, environ={}).run_id
        with monkeypatch.context() as broken:
            broken.setattr(WorkItems, "run_or_hold", lost)
            rt.runs.worker().drain()
        left = rt.runs.ledger.steps(run_id)
        assert any(step.is_open for step in left[:-1])
        fork = rt.runs.resume(run_id, fork=True)
        rt.runs.worker().drain()
        assert rt.runs.status(fork.run_id)["error"] is None
        assert rt.runs.get(fork.run_id).status.value == "complete"


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


def test_a_run_is_carried_out_behind_many_others(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    with Runtime.open(project, pool=False) as rt:
        for _ in range(16):
            rt.runs.submit(work_file(), config={"profile": "ci"}, priority=1, environ={})
        run = rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        rt.runs.work(run.run_id)
        assert rt.runs.get(run.run_id).status.value == "complete"
        assert len(rt.runs.list(status="queued")) == 16


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
        rt.runs.worker().drain()
        assert rt.runs.get(run.run_id).status.value == "complete"
        assert len(rt.runs.list(status="queued")) == 16


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
        with pytest.raises(Refused, match=r"one of the run .* was undone"):
            rt.runs.resume(run_id)
        rt.runs.work_items().undo(str(undo.receipt_id))
        rt.runs.resume(run_id)


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
