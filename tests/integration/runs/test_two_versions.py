"""Workers of two versions on one home: the older one leaves a run alone that it does not know.

The newer version is this code with another table of versions, in processes of its own: the whole of
the product but for two entries.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.terminal import COMMAND, Terminal

from .runs_project import add_agent, make_project, work_file

_NEWER = """
import sys
from actum.runs.contract import check, material
material.VERSIONS["plannerPolicyVersion"] = 2
check.SUPPORTED["plannerPolicyVersion"] = (1, 2)
from actum.doors.cli.main import _run
sys.exit(_run(sys.argv[1:]))
"""
NEWER = (sys.executable, "-c", _NEWER)


@contextlib.contextmanager
def worker(command: tuple[str, ...], project: Path) -> Iterator[None]:
    process = subprocess.Popen([*command, "worker"], cwd=project, stderr=subprocess.DEVNULL)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def submitted(command: tuple[str, ...], project: Path) -> str:
    words = [*command, "runs", "submit", "work.yaml", "--profile", "ci"]
    done = subprocess.run(words, cwd=project, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.req("003-104", "003-105")
def test_a_run_that_the_older_worker_does_not_know_waits_for_the_newer_one(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x >> done.txt")
    (project / "work.yaml").write_text(work_file())
    older = Terminal(project)

    def status(run_id: str) -> Any:
        return older.json("runs", "status", run_id).json

    with worker(COMMAND, project):
        new = submitted(NEWER, project)
        until(lambda: status(new)["blocked"] == "UNSUPPORTED_CONTRACT")
        old = submitted(COMMAND, project)  # behind it, and not held up by it
        until(lambda: bool(status(old)["status"] == "complete"))
        waiting = status(new)
        assert (waiting["status"], waiting["error"], waiting["steps"]) == ("queued", None, [])
        assert waiting["executionContract"]["verified"] == "UNSUPPORTED_CONTRACT"
        listed = {run["runId"]: run["blocked"] for run in older.json("runs", "list").json["runs"]}
        assert listed == {new: "UNSUPPORTED_CONTRACT", old: None}
        asked = older.json("runs", "gate", new)
        assert (asked.code, asked.json["reasonCodes"]) == (1, ["UNSUPPORTED_CONTRACT"])
        with worker(NEWER, project):
            until(lambda: bool(status(new)["status"] == "complete"))
            assert status(new)["blocked"] is None
    assert (project / "done.txt").read_text() == "x\nx\n"
    # The newer worker alone carries out both versions.
    with worker(NEWER, project):
        again = submitted(COMMAND, project)
        until(lambda: bool(status(again)["status"] == "complete"))
    words = [*NEWER, "runs", "status", again, "--json"]
    done = subprocess.run(words, cwd=project, capture_output=True)
    assert json.loads(done.stdout)["executionContract"]["verified"] == "OK"
