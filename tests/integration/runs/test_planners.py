"""Planners: an agent writes the items of a run, once, under a deadline, and changes nothing."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from acceptance.terminal import COMMAND, Terminal
from actum import ContractInvalid, Refused, Runtime
from hostile.jail import marker, sleeps

from .runs_project import add_agent, item, make_project, work_file
from .test_dying_workers import _DYING, until

GOAL = "Write two greetings"
SOURCE = yaml.safe_dump({"run": {"planner": {"agent": "agent-3", "goal": GOAL}}})


def planner(project: Path, *items: dict[str, Any], before: str = "", after: str = "") -> None:
    """An agent-3 that writes these items as its plan."""
    plan = work_file(*items)
    add_agent(project, f"{before}\ncat > actum-plan.yaml <<'END'\n{plan}\nEND\n{after}", number=3)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo one >> one.txt", number=1)
    add_agent(folder, "echo two >> two.txt", number=2)
    two = item(id="two", agent_id="agent-2", dependencies=["one"])
    planner(folder, item(id="one"), two, before="echo spoilt > readme.txt; touch more.txt")
    return folder


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with Runtime.open(project, pool=False) as runtime:
        yield runtime


def carried_out(rt: Runtime, config: dict[str, Any] | None = None) -> Any:
    run_id = rt.runs.submit(SOURCE, config=config or {}, environ={}).run_id
    rt.runs.worker().drain()
    return rt.runs.status(run_id)


def test_a_planner_writes_the_items_and_nothing_else(rt: Runtime, project: Path) -> None:
    before = {path.name for path in project.iterdir()}
    done = carried_out(rt)
    assert done["status"] == "complete", done
    assert [(step["kind"], step["itemId"], step["status"]) for step in done["steps"]] == [
        ("plan", None, "success"),
        ("item", "one", "success"),
        ("item", "two", "success"),
    ]
    assert {path.name for path in project.iterdir()} - before == {"one.txt", "two.txt"}
    assert all(call["receipt_id"] for call in done["steps"][0]["executions"])
    run = rt.runs.get(done["runId"])
    assert [each["id"] for each in json.loads(str(run.plan))["items"]] == ["one", "two"]
    assert Terminal(project).actum("verify", "--all").code == 0


@pytest.mark.req("003-26")
def test_planning_is_aborted_at_the_timeout_of_the_contract(rt: Runtime, project: Path) -> None:
    planner(project, item(id="one"), before="sleep 5")
    late = carried_out(rt, {"plannerTimeoutMs": 1_000})
    assert (late["status"], late["error"]["code"]) == ("failed", "PLANNER_TIMEOUT")
    assert [(step["kind"], step["status"]) for step in late["steps"]] == [("plan", "timeout")]
    assert not (project / "one.txt").exists()
    step = rt.runs.ledger.steps(late["runId"])[0]
    took = datetime.fromisoformat(str(step.ended_at)) - datetime.fromisoformat(step.started_at)
    assert took.total_seconds() >= 1
    # The same planner has the time under another contract.
    rt.runs.resume(late["runId"], config={"plannerTimeoutMs": 120_000}, override=True)
    rt.runs.worker().drain()
    assert rt.runs.status(late["runId"])["status"] == "complete"
    assert (project / "one.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ("items: []", "CONTRACT_INVALID"),
        ("items: [{id: one, agent_id: agent-9, description: x}]", "AGENT_UNKNOWN"),
        (
            "items: [{id: one, agent_id: agent-1, description: x, dependencies: [one]}]",
            "WORK_CYCLE",
        ),
        # The validators and the corrector are the sealed file's.
        (
            "{items: [{id: one, agent_id: agent-1, description: x}], run: {corrector: agent-1}}",
            "CONTRACT_INVALID",
        ),
    ],
)
def test_a_plan_that_is_no_work_file_runs_nothing(
    rt: Runtime, project: Path, plan: str, code: str
) -> None:
    add_agent(project, f"cat > actum-plan.yaml <<'END'\n{plan}\nEND", number=3)
    failed = carried_out(rt)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "PLANNER_FAILED")
    assert [step["codes"] for step in failed["steps"]] == [[code]]
    assert failed["steps"][0]["reason"]


def test_a_planner_without_a_plan_says_which_file_is_missing(rt: Runtime, project: Path) -> None:
    add_agent(project, "true", number=3)
    failed = carried_out(rt)
    assert failed["error"]["code"] == "PLANNER_FAILED"
    assert "actum-plan.yaml" in failed["steps"][0]["reason"]


@pytest.mark.parametrize(
    "section",
    [
        {"run": {"planner": {"agent": "agent-3", "goal": GOAL}}, "items": [item()]},
        {"run": {"heavy": []}},
        {"run": {"planner": {"agent": "agent-3"}}},
    ],
)
def test_a_work_file_has_items_or_a_planner(rt: Runtime, section: dict[str, Any]) -> None:
    with pytest.raises(ContractInvalid):
        rt.runs.submit(yaml.safe_dump(json.loads(json.dumps(section))), environ={})
    assert rt.runs.list() == ()


def test_a_planner_that_does_not_exist_is_refused_at_submission(rt: Runtime, project: Path) -> None:
    (project / "agents/agent-3.yaml").unlink()
    with pytest.raises(Refused, match="agent-3"):
        rt.runs.submit(SOURCE, environ={})
    assert rt.runs.list() == ()


def test_a_continued_run_uses_the_recorded_plan(rt: Runtime, project: Path) -> None:
    add_agent(project, "false", number=2)
    failed = carried_out(rt)
    assert failed["error"]["code"] == "ITEMS_NOT_SUCCEEDED"
    planner(project, item(id="other"))  # asked again, it would answer otherwise
    add_agent(project, "echo two >> two.txt", number=2)
    rt.runs.resume(failed["runId"])
    rt.runs.worker().drain()
    done = rt.runs.status(failed["runId"])
    assert done["status"] == "complete"
    assert [step["kind"] for step in done["steps"]].count("plan") == 1
    assert (project / "one.txt").read_text() == "one\n"
    fork = rt.runs.resume(failed["runId"], fork=True)
    rt.runs.worker().drain()
    assert rt.runs.get(fork.run_id).status.value == "complete"
    assert (project / "one.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("where", "moment"),
    [
        ("WorkItems.plan", "after"),
        ("RunLedger.end_plan", "before"),
        ("RunLedger.end_plan", "after"),
    ],
)
def test_a_worker_killed_around_planning_is_continued(
    rt: Runtime, project: Path, where: str, moment: str
) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    dying = [sys.executable, "-c", _DYING, where, "1", moment, str(project)]
    assert subprocess.run(dying, capture_output=True).returncode == -signal.SIGKILL
    rt.runs.worker().drain()
    assert rt.runs.get(run_id).status.value == "complete"
    ends = [str(step.status) for step in rt.runs.ledger.steps(run_id) if step.kind.value == "plan"]
    answered = where == "RunLedger.end_plan" and moment == "after"
    assert ends == (["success"] if answered else ["interrupted", "success"])
    assert (project / "one.txt").read_text() == "one\n"
    assert Terminal(project).actum("verify", "--all").code == 0


@pytest.mark.req("003-103")
@pytest.mark.parametrize("edit", ["plan", "document", "removed"])
def test_an_edited_plan_of_a_planner_is_not_carried_out(
    rt: Runtime, project: Path, edit: str
) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    dying = [sys.executable, "-c", _DYING, "RunLedger.end_plan", "1", "after", str(project)]
    assert subprocess.run(dying, capture_output=True).returncode == -signal.SIGKILL
    statement = {
        "plan": "UPDATE agent_runs SET plan = replace(plan, 'agent-1', 'agent-2')",
        "document": "UPDATE agent_steps SET document = '{}'",
        "removed": "UPDATE agent_runs SET plan = NULL, plan_sha256 = NULL",
    }[edit]
    with sqlite3.connect(project / ".actum/actum.db") as connection:
        connection.execute("DROP TRIGGER IF EXISTS agent_steps_end_once")
        assert connection.execute(statement).rowcount == 1
    connection.close()
    rt.runs.worker().drain()
    run = rt.runs.get(run_id)
    assert (run.status.value, run.error_code) == ("failed", "CONTRACT_MISMATCH")
    assert not (project / "one.txt").exists()
    assert not (project / "two.txt").exists()


def test_a_planner_ends_when_its_run_is_cancelled(rt: Runtime, project: Path) -> None:
    nap = marker()
    planner(project, item(id="one"), before=f"sleep {nap}")
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    worker = subprocess.Popen([*COMMAND, "worker"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        sleeps(nap)
        rt.runs.cancel(run_id)
        until(lambda: rt.runs.get(run_id).ended_at is not None)
        assert rt.runs.get(run_id).status.value == "cancelled"
    finally:
        worker.kill()
        worker.wait()
