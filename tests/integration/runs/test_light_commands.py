"""Commands about runs that carry none out open the ledger, and not the pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.terminal import COMMAND, Terminal

from .runs_project import add_agent, make_project, work_file

_HEAVY = ("actum.execution.pipeline", "actum.runners.local", "actum.wiring", "actum.runtime")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "date +%N > new.txt")
    (folder / "work.yaml").write_text(work_file())
    return folder


def imported(project: Path, *words: str) -> tuple[str, set[str]]:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], *words]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    lines = done.stderr.splitlines()
    return done.stdout, {line.rpartition("|")[2].strip() for line in lines}


def test_submitting_showing_and_cancelling_load_nothing_that_executes(project: Path) -> None:
    said, modules = imported(project, "runs", "submit", "work.yaml")
    run_id = said.strip()
    assert "actum.runs.run_ledger" in modules
    assert not modules.intersection(_HEAVY)
    for words in (("status", run_id[:8]), ("list",), ("list", "--json")):
        said, modules = imported(project, "runs", *words)
        assert run_id in said
        assert not modules.intersection(_HEAVY), words
    said, modules = imported(project, "runs", "submit", "work.yaml", "--wait")
    assert modules.issuperset(_HEAVY), "the control: this one executes"
    said, modules = imported(project, "runs", "submit", "work.yaml")
    cancelled, modules = imported(project, "runs", "cancel", said.strip())
    assert cancelled == "Cancelled.\n"
    assert not modules.intersection(_HEAVY)
    assert Terminal(project).actum("verify", "--all").code == 0


def test_a_validator_is_checked_when_it_is_submitted(project: Path) -> None:
    """That needs the registry, so the whole project is opened."""
    checked = {"id": "lint", "tool": "shell", "stdin": "true"}
    (project / "work.yaml").write_text(work_file(light=[checked]))
    assert Terminal(project).actum("runs", "submit", "work.yaml").code == 0
    (project / "work.yaml").write_text(work_file(light=[{**checked, "tool": "no-such-tool"}]))
    refused = Terminal(project).actum("runs", "submit", "work.yaml")
    assert refused.code == 3
    assert "no-such-tool" in refused.aside
    assert len(Terminal(project).json("runs", "list").json["runs"]) == 1


def test_an_agent_that_does_not_exist_is_refused(project: Path) -> None:
    (project / "agents/agent-1.yaml").unlink()
    refused = Terminal(project).actum("runs", "submit", "work.yaml")
    assert refused.code == 3
    assert "agent-1.yaml" in refused.aside
