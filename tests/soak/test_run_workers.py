"""Many small runs on three worker processes that are killed throughout: each is done exactly once.

`make test` does a few; `make soak` does 10,000. Each item appends a line to one file, so an item
that was committed twice or never shows in the project itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from acceptance.terminal import COMMAND
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

from .test_leaks import SOAK

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

RUNS = int(os.environ.get("ACTUM_SOAK_RUNS", "10000" if SOAK else "24"))
WORKERS = 3
#: So many runs end between two kills, on average.
ENDED_PER_KILL = 40 if SOAK else 4
#: Submitted ahead of those that have ended.
AHEAD = 500
_MOST_S = 6 * 3_600 if SOAK else 600


class Fleet:
    """Worker processes; a killed one is started again."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.kills = 0
        self.workers = [self._started() for _ in range(WORKERS)]

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*COMMAND, "worker"], cwd=self.project, stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        self.workers[number].kill()
        assert self.workers[number].wait() == -signal.SIGKILL
        self.kills += 1
        self.workers[number] = self._started()

    def at_work(self, rt: Runtime) -> int | None:
        """The number of a worker that carries a run out now."""
        owners = {(run.worker or "").split(" ")[2] for run in rt.runs.ledger.at_work()}
        pids = [str(worker.pid) for worker in self.workers]
        return next((pids.index(pid) for pid in owners if pid in pids), None)

    def end(self) -> None:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(120)
            finally:
                worker.kill()


def make_project(folder: Path) -> Path:
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-18")
    (folder / "agents").mkdir()
    steps = [{"tool": "shell", "stdin": "echo done >> done.txt"}]
    agent = yaml.safe_dump({"agent_id": "agent-1", "steps": steps})
    (folder / "agents/agent-1.yaml").write_text(agent)
    return folder


def work(number: int) -> str:
    item = {"id": f"item-{number}", "agent_id": "agent-1", "description": "Append one line"}
    return yaml.safe_dump({"items": [item]})


@pytest.mark.req("000-187", "003-3", "003-81")
def test_every_run_is_done_once_whoever_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(11)
    project = make_project(tmp_path / "project")
    began = time.monotonic()
    with Runtime.open(project, pool=False) as rt:
        fleet = Fleet(project)
        try:
            submitted = ended = 0
            next_kill = chance.randrange(1, 2 * ENDED_PER_KILL)
            while ended < RUNS:
                assert time.monotonic() - began < _MOST_S, f"{ended} of {RUNS}"
                while submitted < RUNS and submitted - ended < AHEAD:
                    rt.runs.submit(work(submitted), config={"profile": "ci"}, environ={})
                    submitted += 1
                if ended >= next_kill:
                    busy = fleet.at_work(rt)
                    # Mostly one that carries a run out, at any moment of it.
                    if busy is not None:
                        time.sleep(chance.random() * 0.5)
                    fleet.kill(chance.randrange(WORKERS) if busy is None else busy)
                    next_kill = ended + chance.randrange(1, 2 * ENDED_PER_KILL)
                time.sleep(0.05)
                ended = _count(rt, "agent_runs WHERE ended_at IS NOT NULL")
        finally:
            fleet.end()
        taken = time.monotonic() - began
        states = Counter(rt.database.rows("SELECT status, error_code FROM agent_runs"))
        assert states == {("complete", None): RUNS}
        adopted = rt.database.rows(
            "SELECT run_id, receipt_id FROM agent_steps WHERE status = 'success'"
        )
        assert len({run_id for run_id, _receipt in adopted}) == len(adopted) == RUNS
        receipts = {
            receipt_id
            for (receipt_id,) in rt.database.rows(
                "SELECT receipt_id FROM work_runs WHERE status = 'success'"
            )
        }
        assert receipts == {receipt_id for _run_id, receipt_id in adopted}
        assert _count(rt, "agent_steps WHERE state = 'started'") == 0
        interrupted = _count(rt, "agent_steps WHERE status = 'interrupted'")
        assert all(finding.passed for finding in rt.verifier.verify_all())
    assert (project / "done.txt").read_text() == "done\n" * RUNS
    assert fleet.kills > 0
    record_property(
        "figure",
        f"{RUNS} runs on {WORKERS} workers, {fleet.kills} killed, {interrupted} steps interrupted:"
        f" {taken:.0f} s, {RUNS / taken:.1f} runs per second",
    )
    print(json.dumps({"runs": RUNS, "kills": fleet.kills, "interrupted": interrupted, "s": taken}))


def _count(rt: Runtime, where: str) -> int:
    row = rt.database.row(f"SELECT count(*) FROM {where}")
    assert row is not None
    return int(row[0])
