"""Durable runs: from submit to start, the command that submits, from a kill to the next action, and
small items per second.

A worker in a process of its own serves; each run is submitted when the one before it has ended. The
items of the last part write their own content each, in a project of 100 files, four at once.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from measured import interleaved, ratios, summary

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

_COMMAND = (sys.executable, "-m", "actum.doors.cli.main")
_WORK = "items: [{id: one, agent_id: agent-1, description: Nothing}]\n"
ROUNDS, KILLS = 20, 5
ITEMS, FILES, AT_ONCE = 200, 100, 4
_SCRIPT = "mkdir -p out; id=$(date +%s%N)-$$; echo $id > out/$id"


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        create(project, RunnerKind.LOCAL, by="user:bench", date="2026-11-18")
        (project / "agents").mkdir()
        agent = "agent_id: agent-1\nsteps: [{tool: shell, stdin: 'test -e go || sleep 60'}]\n"
        (project / "agents/agent-1.yaml").write_text(agent)
        (project / "work.yaml").write_text(_WORK)
        (project / "go").touch()
        with Runtime.open(project, pool=False) as rt:
            started = _from_submit_to_start(rt, project)
            killed = _from_kill_to_action(rt, project)
        return {
            "submit_to_start": started,
            "kill_to_action": killed,
            "command": _command(project),
            "items": _items(Path(folder) / "items"),
        }


def _items(project: Path) -> dict[str, float]:
    create(project, RunnerKind.LOCAL, by="user:bench", date="2026-11-19")
    (project / "agents").mkdir()
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": _SCRIPT}]}
    (project / "agents/agent-1.yaml").write_text(json.dumps(agent))
    (project / "old").mkdir()
    for number in range(FILES):
        (project / f"old/{number}").write_text(f"{number}\n")

    def work(name: str, count: int) -> str:
        named = [
            {"id": f"{name}-{number:04d}", "agent_id": "agent-1", "description": "Write one file"}
            for number in range(count)
        ]
        return json.dumps({"items": named})

    with Runtime.open(project, pool=False) as rt:
        assert rt.work_file(work("first", 2 * AT_ONCE), at_once=AT_ONCE).ok  # everything is warm
        began, used = time.perf_counter(), _processor_s()
        assert rt.work_file(work("item", ITEMS), at_once=AT_ONCE).ok
        took, used = time.perf_counter() - began, _processor_s() - used
    return {
        "items": ITEMS,
        "per_second": round(ITEMS / took, 1),
        "processor_ms_each": round(used / ITEMS * 1e3, 1),
    }


def _processor_s() -> float:
    """Of this process and of those that it has waited for."""
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)


def _worker(project: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*_COMMAND, "worker"], cwd=project, stderr=subprocess.DEVNULL)


def _until(found: Any) -> None:
    while not found():
        time.sleep(0.01)


def _from_submit_to_start(rt: Runtime, project: Path) -> dict[str, float]:
    worker = _worker(project)
    took = []
    try:
        for number in range(-1, ROUNDS):
            run_id = rt.runs.submit(_WORK, config={"profile": "ci"}, environ={}).run_id
            _until(lambda run_id=run_id: rt.runs.get(run_id).ended_at is not None)
            run = rt.runs.get(run_id)
            began, at = (
                datetime.fromisoformat(str(each)) for each in (run.created_at, run.started_at)
            )
            if number >= 0:  # the first one waits for the worker's own start
                took.append((at - began).total_seconds() * 1e3)
            time.sleep(0.1)
    finally:
        worker.terminate()
        worker.wait()
    return summary(took)


def _from_kill_to_action(rt: Runtime, project: Path) -> dict[str, float]:
    """From SIGKILL of the worker until another one, which waits, has claimed the run."""
    took = []
    for _ in range(KILLS):
        (project / "go").unlink()
        run_id = rt.runs.submit(_WORK, config={"profile": "ci"}, environ={}).run_id
        first = _worker(project)
        _until(lambda run_id=run_id: bool(rt.runs.ledger.steps(run_id)))
        second = _worker(project)
        _until(lambda: len(list((project / ".actum/workers").glob("*.json"))) == 2)
        fence = rt.runs.get(run_id).fence
        began = time.perf_counter()
        first.kill()
        _until(lambda run_id=run_id, fence=fence: rt.runs.get(run_id).fence > fence)
        took.append((time.perf_counter() - began) * 1e3)
        first.wait()
        (project / "go").touch()
        _until(lambda run_id=run_id: rt.runs.get(run_id).ended_at is not None)
        second.terminate()
        second.wait()
    return summary(took)


def _command(project: Path) -> dict[str, Any]:
    def ran(*words: str) -> None:
        subprocess.run([*_COMMAND, *words], cwd=project, check=True, capture_output=True)

    found = interleaved(
        {
            "version": lambda: ran("--version"),
            "submit": lambda: ran("runs", "submit", "work.yaml"),
        },
        rounds=10,
    )
    return {**found, "ratios": ratios(found, "version")}
