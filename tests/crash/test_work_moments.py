"""A work item is killed at any moment: the project is wholly before or wholly after, and closed.

Each trial is one process, killed where it touches the world, and then the test opens the project,
as anyone would. `make soak` tries every moment of the commit; `make test` a spread of them. Two
controls leave a part of the protocol out and must show what the protocol is for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from actum.contract.model import RunnerKind
from actum.project import create

from .matrix import spread

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="the driver mounts as root"),
]

_DRIVER = Path(__file__).with_name("work_driver.py")
_INSPECT = Path(__file__).with_name("work_inspect.py")
_AGENT = """
printf changed > edit; rm -r gone; mkdir -p made/deep; printf n > made/new; printf d > made/deep/x
mv folder moved; ln -s edit link; chmod 700 mode; rm file; mkdir file; printf in > file/in
rm -r tree; printf flat > tree; for i in 1 2 3; do printf $i > made/$i; done
"""


def make_template(folder: Path) -> Path:
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    for name in ("edit", "gone/a", "gone/b/c", "folder/a", "folder/b", "mode", "file", "tree/a/b"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"old {name}")
    (folder / "agents").mkdir()
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": _AGENT}]}
    (folder / "agents/agent-1.yaml").write_text(yaml.safe_dump(agent))
    return folder


def drive(
    project: Path,
    kill_at: int,
    phase: str,
    broken: str = "nothing",
    *,
    allow_failure: bool = False,
) -> dict | None:
    """What the driver said; ``None`` if it was killed."""
    done = subprocess.run(
        [sys.executable, str(_DRIVER), str(project), str(kill_at), phase, broken],
        capture_output=True,
        text=True,
        cwd="/",
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    assert done.returncode == -9 or allow_failure, done.stderr[-3000:]
    return None


class Lab:
    """A project to copy, and what it is before and after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = make_template(folder / "template")
        told = subprocess.run(
            [sys.executable, "-m", "actum.doors.cli.main", "item", "hash"],
            cwd=self.template,
            capture_output=True,
            text=True,
            check=True,
        )
        self.before = told.stdout.strip()
        project = self.copy("reference")
        self.unharmed = drive(project, 0, "all")
        assert self.unharmed is not None
        assert self.unharmed["result"]["status"] == "success", self.unharmed
        self.after = self.unharmed["result"]["output_hash"]
        counted = drive(self.copy("counted"), 0, "commit")
        assert counted is not None
        self.commit_moments = counted["moments"]
        self.all_moments = self.unharmed["moments"]

    def copy(self, name: str) -> Path:
        project = self.folder / name
        shutil.copytree(self.template, project, symlinks=True)
        return project

    def inconsistencies(self, project: Path) -> list[str]:
        """What is wrong after the project was opened again; empty if nothing is."""
        return self.look(project)[1]

    def look(self, project: Path) -> tuple[str, list[str]]:
        """(state, what is wrong), seen by a process of its own, which keeps nothing open."""
        done = subprocess.run(
            [sys.executable, str(_INSPECT), str(project), self.before, self.after],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if done.returncode != 0:
            return "", [f"it cannot be opened: {done.stderr[-1500:]}"]
        answer = json.loads(done.stdout)
        return answer["state"], answer["wrong"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("crash"))


@pytest.mark.soak
@pytest.mark.req("002-35", "002-47")
@pytest.mark.parametrize(("phase", "wanted"), [("all", 8), ("commit", 24)])
def test_killed_at_any_moment_it_is_wholly_before_or_wholly_after(
    lab: Lab, phase: str, wanted: int
) -> None:
    total = lab.all_moments if phase == "all" else lab.commit_moments
    bad, ends = {}, set()
    for kill_at in spread(total, wanted):
        project = lab.copy(f"{phase}-{kill_at}")
        if drive(project, kill_at, phase) is not None:
            continue  # fewer moments this time
        state, problems = lab.look(project)
        ends.add(state)
        if problems:
            bad[kill_at] = problems
        shutil.rmtree(project)
    assert bad == {}
    if phase == "commit":
        assert ends == {lab.before, lab.after}  # both sides of the commit point were struck


def test_control_without_the_intent_a_kill_leaves_something_in_between(lab: Lab) -> None:
    counted = drive(lab.copy("broken"), 0, "commit", "intent")
    assert counted is not None
    inconsistent = False
    for kill_at in spread(counted["moments"], 24):
        project = lab.copy(f"broken-{kill_at}")
        if drive(project, kill_at, "commit", "intent") is None:
            inconsistent = bool(lab.inconsistencies(project))
        shutil.rmtree(project)
        if inconsistent:
            break
    assert inconsistent
