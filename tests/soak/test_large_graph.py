"""A graph of many small items, killed in the middle and continued by the same command.

`make test` does a tenth; `make soak` does 1,000. Each item writes its own content, so no two of
them are the same work. An item that was committed twice or never shows in the project itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from acceptance.terminal import COMMAND
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

from .test_leaks import SOAK

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

ITEMS = 1_000 if SOAK else 100
AT_ONCE = 4
FILES = 100  #: in the project before the first item
_MOST_MIB = 50
_MOST_S = 3_600 if SOAK else 600
_SCRIPT = "mkdir -p out; id=$(date +%s%N)-$$; echo $id > out/$id"


@dataclass(frozen=True)
class Ended:
    """One `actum work`, from its start to its end."""

    code: int
    grown_mib: float  #: its own memory, since it had committed its first items
    processor_s: float  #: with all processes that it has waited for


class Work:
    """`actum work` in a process of its own, whose memory is sampled."""

    def __init__(self, project: Path) -> None:
        words = [*COMMAND, "work", "work.json", "--at-once", str(AT_ONCE)]
        self._process = subprocess.Popen(
            words, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._resident_kib: list[int] = []
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._over.wait(0.2):
            kib = _resident_kib(self._process.pid)
            if kib:
                self._resident_kib.append(kib)

    def warm(self) -> None:
        """Count its memory from here on."""
        self._sampler.start()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> Ended:
        try:
            _pid, status, usage = os.wait4(self._process.pid, 0)
        finally:
            self._over.set()
            self._sampler.join()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        kib = self._resident_kib or [0]
        return Ended(
            code=self._process.returncode,
            grown_mib=(max(kib) - kib[0]) / 1024,
            processor_s=usage.ru_utime + usage.ru_stime,
        )


def _resident_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def make_project(folder: Path) -> Path:
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-19")
    (folder / "agents").mkdir()
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": _SCRIPT}]}
    (folder / "agents/agent-1.yaml").write_text(yaml.safe_dump(agent))
    (folder / "old").mkdir()
    for number in range(FILES):
        (folder / f"old/{number}").write_text(f"{number}\n")
    items = [
        {"id": f"item-{number:04d}", "agent_id": "agent-1", "description": f"Number {number}"}
        for number in range(ITEMS)
    ]
    (folder / "work.json").write_text(json.dumps({"items": items}))
    return folder


def test_a_large_graph_is_continued_where_it_was_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    project = make_project(tmp_path / "project")
    killed = _until(Work(project), project, ITEMS // 2, kill=True)
    assert killed.code == -signal.SIGKILL
    with Runtime.open(project, pool=False) as rt:
        (run,) = rt.runs.list()
        committed = _committed(rt)
    assert ITEMS // 2 <= len(committed) < ITEMS
    load = os.getloadavg()[0]
    continued = _until(Work(project), project, ITEMS // 2 + ITEMS // 20, kill=False)
    assert continued.code == 0
    with Runtime.open(project, pool=False) as rt:
        assert [each.run_id for each in rt.runs.list()] == [run.run_id], "it is the same run"
        done = _committed(rt)
        steps = rt.runs.ledger.steps(run.run_id)
        ends = Counter(str(step.status) for step in steps)
        assert all(finding.passed for finding in rt.verifier.verify_all())
    assert committed.items() <= done.items(), "what was committed keeps its receipt"
    assert sorted(done) == [f"item-{number:04d}" for number in range(ITEMS)]
    assert len(set(done.values())) == ITEMS
    assert set(ends) <= {"success", "interrupted"}
    assert ends["success"] == ITEMS
    assert ends["interrupted"] <= AT_ONCE
    contents = [path.read_text() for path in (project / "out").iterdir()]
    assert len(contents) == len(set(contents)) == ITEMS
    assert not list(project.glob(".actum/work/*/rooms/*"))
    assert max(killed.grown_mib, continued.grown_mib) < _MOST_MIB
    last = [step for step in steps if step.fence == steps[-1].fence]
    took_s = (_at(last[-1].ended_at) - _at(last[0].started_at)).total_seconds()
    record_property(
        "figure",
        f"{ITEMS} items, {AT_ONCE} at once, killed after {len(committed)}: the other {len(last)} in"
        f" {took_s:.0f} s ({len(last) / took_s:.1f}/s, {continued.processor_s:.0f} s of processor"
        f" time, load {load:.1f} before), memory grown by {killed.grown_mib:.1f} and"
        f" {continued.grown_mib:.1f} MiB, {ends['interrupted']} interrupted",
    )


def _until(work: Work, project: Path, count: int, *, kill: bool) -> Ended:
    """Sample its memory from the first items on; kill it when so many have written their file."""
    deadline = time.monotonic() + _MOST_S
    try:
        began = _written(project)
        _wait(lambda: _written(project) >= began + AT_ONCE, deadline)
        work.warm()
        if kill:
            _wait(lambda: _written(project) >= count, deadline)
    except BaseException:
        work.kill()
        raise
    if kill:
        work.kill()
    return work.end()


def _wait(found: Callable[[], bool], deadline: float) -> None:
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _written(project: Path) -> int:
    out = project / "out"
    return len(os.listdir(out)) if out.exists() else 0


def _committed(rt: Runtime) -> dict[str, str]:
    """Item -> its receipt; each item once."""
    rows: list[tuple[Any, ...]] = rt.database.rows(
        "SELECT item_id, receipt_id FROM work_runs WHERE status = 'success' ORDER BY item_id"
    )
    found = dict(rows)
    assert len(found) == len(rows)
    return found


def _at(text: object) -> datetime:
    return datetime.fromisoformat(str(text))
