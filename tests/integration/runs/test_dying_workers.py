"""Workers that are killed, stopped and come back: nothing is lost, nothing is done twice."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.terminal import COMMAND, Terminal
from actum import Runtime
from actum.runs.model import Run
from hostile.jail import marker, sleeps, wake

from .runs_project import add_agent, item, make_project, work_file

#: A worker that kills itself the N-th time it passes a named call.
_DYING = """
import os, signal, sys
from actum import Runtime
from actum.runs import perform, carry_out
from actum.runs.run_ledger import RunLedger
from actum.work.work_items import WorkItems

where, number, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
owner = {"RunLedger": RunLedger, "WorkItems": WorkItems, "Performer": perform.Performer}
kind, name = where.split(".")
original, passed = getattr(owner[kind], name), 0

def dying(self, *args, **more):
    global passed
    passed += 1
    if passed == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = original(self, *args, **more)
    if passed == number and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

setattr(owner[kind], name, dying)
with Runtime.open(sys.argv[4], pool=False) as rt:
    rt.runs.worker().drain()
"""
MOMENTS = [
    ("RunLedger.claim", 1, "after"),
    ("RunLedger.plan", 1, "after"),
    ("RunLedger.start_step", 1, "before"),
    ("RunLedger.start_step", 1, "after"),
    ("WorkItems.run_or_hold", 1, "after"),
    ("RunLedger.end_step", 1, "after"),
    ("RunLedger.start_step", 2, "after"),
    ("WorkItems.run_or_hold", 2, "after"),
    ("Performer.validate", 1, "before"),
    ("RunLedger.end_step", 3, "before"),
    ("RunLedger.end_step", 3, "after"),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo one >> one.txt", number=1)
    add_agent(folder, "echo two >> two.txt", number=2)
    return folder


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with Runtime.open(project, pool=False) as runtime:
        yield runtime


SOURCE = work_file(
    item(id="one"),
    item(id="two", agent_id="agent-2", dependencies=["one"]),
    heavy=[{"id": "both", "tool": "shell", "stdin": "test -e one.txt && test -e two.txt"}],
)


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("where", "number", "moment"), MOMENTS)
def test_a_worker_killed_anywhere_is_continued_by_another(
    rt: Runtime, project: Path, where: str, number: int, moment: str
) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    ended = subprocess.run(
        [sys.executable, "-c", _DYING, where, str(number), moment, str(project)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    rt.runs.worker().drain()
    run = rt.runs.get(run_id)
    assert (run.status.value, run.validation_status) == ("complete", "passed"), run
    assert (project / "one.txt").read_text() == "one\n"
    assert (project / "two.txt").read_text() == "two\n"
    committed = [
        (step.item_id, step.receipt_id)
        for step in rt.runs.ledger.steps(run_id)
        if step.kind.value == "item" and step.status is not None and step.status.value == "success"
    ]
    assert [name for name, _receipt in committed] == ["one", "two"]
    assert not any(step.is_open for step in rt.runs.ledger.steps(run_id))
    assert Terminal(project).actum("verify", "--all").code == 0


def test_a_running_run_is_cancelled_and_can_be_continued(rt: Runtime, project: Path) -> None:
    nap = marker()
    add_agent(project, f"echo half > half.txt; sleep {nap}", number=1)
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    worker = subprocess.Popen([*COMMAND, "worker"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        sleeps(nap)
        assert Terminal(project).actum("runs", "cancel", run_id).code == 0
        until(lambda: _ended(rt.runs.get(run_id)))
        assert rt.runs.get(run_id).status.value == "cancelled"
        assert Terminal(project).actum("runs", "status", run_id).code == 130
        assert not (project / "half.txt").exists()
        add_agent(project, "echo one >> one.txt", number=1)
        rt.runs.resume(run_id)
        until(lambda: _ended(rt.runs.get(run_id)))
        assert rt.runs.get(run_id).status.value == "complete"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


def _ended(run: Run) -> bool:
    return run.ended_at is not None


def test_sigterm_hands_the_run_to_the_next_worker(rt: Runtime, project: Path) -> None:
    nap = marker()
    add_agent(project, f"sleep {nap}; echo one >> one.txt", number=1)
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    first = subprocess.Popen([*COMMAND, "worker"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        sleeps(nap)
        first.send_signal(signal.SIGTERM)
        wake(nap)
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
    waiting = rt.runs.get(run_id)
    assert (waiting.status.value, waiting.worker) == ("queued", None)
    steps = rt.runs.ledger.steps(run_id)
    assert [(step.item_id, str(step.status)) for step in steps] == [("one", "success")]
    rt.runs.worker().drain()
    assert rt.runs.get(run_id).status.value == "complete"
    assert (project / "one.txt").read_text() == "one\n"


def test_a_folder_has_one_run_at_a_time_by_priority(rt: Runtime) -> None:
    low = rt.runs.submit(SOURCE, environ={}).run_id
    high = rt.runs.submit(SOURCE, environ={}, priority=5).run_id
    assert [run.run_id for run in rt.runs.ledger.queued()] == [high, low]
    claimed = rt.runs.ledger.claim(rt.runs.get(high), "somewhere")
    assert claimed is not None
    assert rt.runs.ledger.queued() == ()
    assert rt.runs.ledger.claim(rt.runs.get(low), "elsewhere") is None


def test_a_fault_of_actum_ends_the_run_and_not_the_worker(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    with monkeypatch.context() as broken:
        broken.setattr("actum.runs.carry_out.decide", lambda *_: {}["gone"])
        rt.runs.worker().drain()
    run = rt.runs.get(run_id)
    assert (run.status.value, run.error_code) == ("failed", "RUN_FAULT")
    assert "KeyError" in str(rt.runs.status(run_id)["error"])
    rt.runs.resume(run_id)
    rt.runs.worker().drain()
    assert rt.runs.get(run_id).status.value == "complete"


def test_an_agent_that_does_not_exist_is_the_end_of_its_step(rt: Runtime, project: Path) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    (project / "agents/agent-2.yaml").unlink()
    rt.runs.worker().drain()
    assert rt.runs.get(run_id).error_code == "ITEMS_NOT_SUCCEEDED"
    last = rt.runs.ledger.steps(run_id)[-1]
    assert (last.item_id, str(last.status), last.reasons) == ("two", "failure", ("AGENT_UNKNOWN",))


def test_an_edited_plan_decides_nothing(rt: Runtime, project: Path) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    dying = [sys.executable, "-c", _DYING, "RunLedger.plan", "1", "after", str(project)]
    assert subprocess.run(dying, capture_output=True).returncode == -signal.SIGKILL
    plan = str(rt.runs.get(run_id).plan)
    with sqlite3.connect(project / ".actum/actum.db") as connection:
        changed = plan.replace('"agent-1"', '"agent-2"')
        assert changed != plan
        connection.execute("UPDATE agent_runs SET plan = ?", (changed,))
    connection.close()
    rt.runs.worker().drain()
    assert (project / "one.txt").read_text() == "one\n"
    assert (project / "two.txt").read_text() == "two\n"


def test_runs_are_in_the_log_and_found_by_the_beginning_of_their_id(
    rt: Runtime, project: Path
) -> None:
    run_id = rt.runs.submit(SOURCE, environ={}).run_id
    rt.runs.worker().drain()
    terminal = Terminal(project)
    entries = terminal.json("log").json["log"]
    found = [(each["outcome"], each["id"]) for each in entries if each["kind"] == "run"]
    assert found == [("submitted", run_id), ("complete", run_id)]
    assert terminal.json("runs", "status", run_id[:8]).json["runId"] == run_id


VALIDATED = {"lightValidationMode": "enforce", "heavyValidationMode": "enforce"}


@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_a_validator_ends_when_its_run_is_cancelled(rt: Runtime, project: Path, kind: str) -> None:
    nap = marker()
    source = work_file(
        item(id="one"), **{kind: [{"id": "v", "tool": "shell", "stdin": f"sleep {nap}"}]}
    )
    run_id = rt.runs.submit(source, config=VALIDATED, environ={}).run_id
    worker = subprocess.Popen([*COMMAND, "worker"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        sleeps(nap)
        rt.runs.cancel(run_id)
        until(lambda: _ended(rt.runs.get(run_id)))
        assert rt.runs.get(run_id).status.value == "cancelled"
        last = rt.runs.ledger.steps(run_id)[-1]
        assert (last.kind.value, str(last.status)) == (kind, "interrupted")
    finally:
        worker.kill()
        worker.wait()


def test_a_validator_ends_with_the_grace_of_its_worker(rt: Runtime, project: Path) -> None:
    nap = marker()
    heavy = {"id": "v", "tool": "shell", "stdin": f"test -e quick || sleep {nap}"}
    source = work_file(item(id="one"), heavy=[heavy])
    run_id = rt.runs.submit(source, config=VALIDATED, environ={}).run_id
    first = subprocess.Popen(
        [*COMMAND, "worker", "--grace", "0.1"], cwd=project, stderr=subprocess.DEVNULL
    )
    try:
        sleeps(nap)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
    waiting = rt.runs.get(run_id)
    assert (waiting.status.value, waiting.worker) == ("queued", None)
    assert str(rt.runs.ledger.steps(run_id)[-1].status) == "interrupted"
    (project / "quick").touch()
    rt.runs.worker().drain()
    done = rt.runs.get(run_id)
    assert (done.status.value, done.validation_status) == ("complete", "passed")
