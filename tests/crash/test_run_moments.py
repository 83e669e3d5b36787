"""A worker of durable runs dies at every point of a run, and the run is continued in three ways.

After each: the files are whole, every item was committed once, each adopted step has one receipt,
no step is open, nothing is left behind, and everything verifies. `make soak` does all cells, `make
test` a spread of them. Then zombies: a worker that is stopped inside a step loses its run, comes
back, and writes nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from acceptance.terminal import COMMAND
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.evidence.owner import current_owner
from actum.project import create
from actum.runs.contract.check import SUPPORTED
from actum.runs.dispatch.embedded import EmbeddedDispatch
from actum.runs.new_run import queues_of
from actum.value import replace
from actum.workspace.commit import pending_intent
from hostile.jail import alive, marker, sleeps, wake

from .matrix import spread

pytestmark = pytest.mark.sandbox

HERE = Path(__file__).resolve().parent
SOAK = os.environ.get("ACTUM_SOAK") == "1"
_MOST_S = 120.0

AGENTS = {
    "agent-1": "echo one >> one.txt",
    "agent-2": "test -e one.txt && echo two >> two.txt",
    "agent-7": "echo fixed >> fixed.txt",
}
WORK = {
    "run": {
        "light": [{"id": "fixed", "tool": "shell", "stdin": "test -e fixed.txt"}],
        "heavy": [{"id": "both", "tool": "shell", "stdin": "test -e one.txt && test -e two.txt"}],
        "corrector": "agent-7",
    },
    "items": [
        {"id": "one", "agent_id": "agent-1", "description": "One"},
        {"id": "two", "agent_id": "agent-2", "description": "Two", "dependencies": ["one"]},
    ],
}
#: The light validation of `one` fails, its correction passes, then `two`, then the heavy one.
ADOPTED = ["one", "one:c1", "two"]
FILES = {"one.txt": "one\n", "two.txt": "two\n", "fixed.txt": "fixed\n"}

_BOTH = (
    *("order", "verify", "claim", "plan", "started", "intent", "records", "ended", "light"),
    *("correction", "heavy", "run receipt", "decision"),
)
POINTS = [
    *((point, moment) for point in _BOTH for moment in ("before", "after")),
    *(
        (point, "after")
        for point in (
            *("settle", "may commit", "applied", "answered", "light verdict", "heavy verdict"),
            *("frozen", "called", "ready"),
        )
    ),
]
WAYS = ("restart", "another", "cancelled")
CELLS = [(point, moment, way) for point, moment in POINTS for way in WAYS]
#: With strides that share no factor with the number of ways, each way occurs.
CHOSEN = CELLS if SOAK else [CELLS[number - 1] for number in spread(len(CELLS), 8)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-18")
    (folder / "agents").mkdir()
    for name, script in AGENTS.items():
        agent = {"agent_id": name, "steps": [{"tool": "shell", "stdin": script}]}
        (folder / f"agents/{name}.yaml").write_text(yaml.safe_dump(agent))
    return folder


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    """A process that had the project open before the worker died."""
    with Runtime.open(project, pool=False) as runtime:
        yield runtime


def submitted(rt: Runtime) -> str:
    config = {"profile": "full", "correctionPolicyMode": "off"}
    return rt.runs.submit(yaml.safe_dump(WORK), config=config, environ={}).run_id


def driver(project: Path, point: str, moment: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "run_driver.py"), str(project), point, moment, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={
            **os.environ,
            "PYTHONPATH": str(HERE / "run_hooks"),
            "ACTUM_TEST_HOOKS_PATH": str(HERE.parent / "strikes/hooks"),
        },
    )


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _MOST_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def inconsistencies(rt: Runtime, project: Path, run_id: str) -> list[str]:
    run, steps = rt.runs.get(run_id), rt.runs.ledger.steps(run_id)
    found = []
    if (run.status.value, run.validation_status) != ("complete", "passed"):
        found.append(f"the run is {run.status.value}: {run.error_code} {run.error_details}")
    for name, content in FILES.items():
        held = (project / name).read_text() if (project / name).exists() else None
        if held != content:
            found.append(f"{name} is {held!r}")
    adopted = [step for step in steps if step.status == "success" and step.work_run_id]
    if sorted(str(step.item_id) for step in adopted) != ADOPTED:
        found.append(f"adopted: {[step.item_id for step in adopted]}")
    if [step.step_index for step in steps] != list(range(len(steps))):
        found.append("the numbers of steps have gaps")
    if any(step.is_open for step in steps):
        found.append("a step is open")
    rows = rt.database.rows(
        "SELECT item_id, receipt_id, run_id FROM work_runs WHERE status = 'success'"
    )
    if Counter((row[1], row[2]) for row in rows) != Counter(
        (step.receipt_id, step.work_run_id) for step in adopted
    ):
        found.append(f"committed: {rows}")
    if rt.database.rows("SELECT 1 FROM work_runs WHERE state <> 'FINAL'"):
        found.append("a work item's run is open")
    for space in (project / ".actum/work").iterdir():
        if pending_intent(space) is not None:
            found.append("an intent was left")
        found += [f"left: {room.name}" for room in (space / "rooms").iterdir()]
    found += [str(finding) for finding in rt.verifier.verify_all() if not finding.passed]
    return found


@pytest.mark.soak
@pytest.mark.req("003-3", "003-81")
@pytest.mark.parametrize(
    ("point", "moment", "way"), CHOSEN, ids=lambda each: str(each).replace(" ", "-")
)
def test_a_run_is_continued_wherever_its_worker_died(
    rt: Runtime, project: Path, point: str, moment: str, way: str
) -> None:
    run_id = submitted(rt)
    victim = driver(project, point, moment, "SIGKILL")
    said, complaints = victim.communicate(timeout=_MOST_S)
    assert victim.returncode == -signal.SIGKILL, (said, complaints)
    if way == "restart":
        again = [*COMMAND, "worker", "--once"]
        subprocess.run(again, cwd=project, check=True, capture_output=True, timeout=_MOST_S)
    elif way == "another":
        rt.runs.worker().drain()
    elif rt.runs.get(run_id).ended_at is None:
        rt.runs.cancel(run_id)
        rt.runs.worker().drain()
        assert rt.runs.get(run_id).status.value == "cancelled"
        for name, content in FILES.items():  # each item wholly or not at all
            assert not (project / name).exists() or (project / name).read_text() == content
        rt.runs.resume(run_id)
        rt.runs.worker().drain()
    assert inconsistencies(rt, project, run_id) == []


@pytest.mark.req("003-103")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_refusal_that_died_with_its_worker_is_made_by_the_next(
    rt: Runtime, project: Path, moment: str
) -> None:
    """The decision about a run whose contract was edited."""
    run_id = submitted(rt)
    with sqlite3.connect(rt.settings.home / "actum.db") as connection:
        connection.execute("UPDATE agent_runs SET metadata = replace(metadata, '15', '16')")
    connection.close()
    victim = driver(project, "verify", moment, "SIGKILL")
    victim.communicate(timeout=_MOST_S)
    assert victim.returncode == -signal.SIGKILL
    rt.runs.worker().drain()
    run = rt.runs.get(run_id)
    assert (run.status.value, run.error_code) == ("failed", "CONTRACT_MISMATCH")
    assert rt.runs.ledger.steps(run_id) == ()
    assert len(rt.runs.ledger.decisions(run_id)) == 1
    assert not any((project / name).exists() for name in FILES)


#: Between two writes: a process that is stopped inside of one holds the store's lock, and no other
#: process writes until it runs or dies.
ZOMBIES = [
    *(("frozen", "after"), ("called", "after"), ("ready", "after"), ("started", "after")),
    *(("answered", "after"), ("light verdict", "before"), ("light verdict", "after")),
    *(("correction", "before"), ("heavy verdict", "after"), ("may commit", "after")),
]


@pytest.mark.soak
@pytest.mark.req("003-3")
@pytest.mark.parametrize(
    ("point", "moment"),
    ZOMBIES if SOAK else [ZOMBIES[1], ZOMBIES[6], ZOMBIES[-1]],
    ids=lambda each: str(each).replace(" ", "-"),
)
def test_a_worker_that_comes_back_after_its_run_was_taken_writes_nothing(
    rt: Runtime, project: Path, point: str, moment: str
) -> None:
    run_id = submitted(rt)
    zombie = driver(project, point, moment, "SIGSTOP")
    heir = threading.Thread(target=lambda: _impatient(rt).drain())
    try:
        until(lambda: _state_of(zombie.pid) == "T")
        stopped = rt.runs.get(run_id)
        heir.start()
        until(lambda: rt.runs.get(run_id).fence > stopped.fence)
        _require_fenced(zombie, heir)
    finally:
        zombie.kill()
        zombie.communicate()
    assert inconsistencies(rt, project, run_id) == []
    _require_taken_once(rt, run_id, stopped.fence)


def _require_fenced(zombie: subprocess.Popen[str], heir: threading.Thread) -> None:
    """The stopped worker goes on, and writes nothing; its heir ends the run."""
    zombie.send_signal(signal.SIGCONT)
    said, complaints = zombie.communicate(timeout=_MOST_S)
    assert zombie.returncode == 0, complaints
    assert "fenced" in said.splitlines(), said
    heir.join(_MOST_S)
    assert not heir.is_alive()


def _require_taken_once(rt: Runtime, run_id: str, fence: int) -> None:
    """By this process, which alone wrote the steps since."""
    taken = rt.runs.get(run_id)
    assert taken.fence == fence + 1
    later = [step for step in rt.runs.ledger.steps(run_id) if step.fence == taken.fence]
    assert {step.worker for step in later} <= {current_owner()}


#: Step -> the script of its tool, which sleeps first: `agents/NAME.yaml`, or the light validator.
SLEEPING = {
    "item": ("agent-1", AGENTS["agent-1"]),
    "correction": ("agent-7", AGENTS["agent-7"]),
    "light": ("", "test -e fixed.txt"),
}


@pytest.mark.req("003-3")
@pytest.mark.parametrize("kind", SLEEPING)
@pytest.mark.parametrize("tool", ["runs on", "ended meanwhile"])
def test_a_worker_stopped_while_a_tool_of_its_step_runs_writes_nothing_later(
    rt: Runtime, project: Path, kind: str, tool: str
) -> None:
    """The tool is not stopped with it. It ends while the worker stands still, or with the step."""
    nap = marker()
    agent, script = SLEEPING[kind]
    source = json.loads(json.dumps(WORK))
    slow = f"sleep {nap}; {script}"
    if agent:
        document = {"agent_id": agent, "steps": [{"tool": "shell", "stdin": slow}]}
        (project / f"agents/{agent}.yaml").write_text(yaml.safe_dump(document))
    else:
        source["run"]["light"][0]["stdin"] = slow
    config = {"profile": "full", "correctionPolicyMode": "off"}
    run_id = rt.runs.submit(yaml.safe_dump(source), config=config, environ={}).run_id
    zombie = driver(project, "none", "after", "SIGSTOP")
    heir = threading.Thread(target=lambda: _impatient(rt).drain())
    try:
        sleeps(nap)
        zombie.send_signal(signal.SIGSTOP)
        until(lambda: _state_of(zombie.pid) == "T")
        stopped = rt.runs.get(run_id)
        if tool == "ended meanwhile":
            wake(nap)
        heir.start()
        until(lambda: rt.runs.get(run_id).fence > stopped.fence)
        with waking(nap):
            _require_fenced(zombie, heir)
    finally:
        zombie.kill()
        zombie.communicate()
    assert inconsistencies(rt, project, run_id) == []
    _require_taken_once(rt, run_id, stopped.fence)
    ends = [(step.kind.value, str(step.status)) for step in rt.runs.ledger.steps(run_id)]
    assert (kind, "interrupted") in ends


@contextmanager
def waking(nap: str) -> Iterator[None]:
    """End every `sleep` of this length meanwhile."""
    over = threading.Event()

    def wake_all() -> None:
        while not over.wait(0.1):
            for pid in alive(nap):
                with suppress(ProcessLookupError, FileNotFoundError):
                    if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                        os.kill(pid, signal.SIGTERM)

    waker = threading.Thread(target=wake_all)
    waker.start()
    try:
        yield
    finally:
        over.set()
        waker.join()


def _impatient(rt: Runtime):  # type: ignore[no-untyped-def]
    """A worker that takes another one for dead after three seconds."""
    ledger = rt.runs.ledger
    dispatch = EmbeddedDispatch(
        rt.settings.home,
        queues=queues_of(SUPPORTED),
        waiting=ledger.waiting,
        owner_of=ledger.owner_of,
        dead_after_s=3.0,
    )
    worker = replace(rt.runs.worker(), dispatch=dispatch)
    until(lambda: bool(dispatch.absent([run.ticket for run in ledger.at_work()])))
    return worker


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
