"""`actum doctor` names code that decides about runs and was changed without its version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import actum
from acceptance.terminal import Terminal

SOURCE = Path(actum.__file__).parent


def doctor_of(package: Path) -> tuple[int, list[str]]:
    """What the doctor of another copy of Actum says."""
    done = subprocess.run(
        [sys.executable, "-m", "actum.doors.cli.main", "doctor", "--json"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=package.parent,
    )
    return done.returncode, json.loads(done.stdout)["run_decisions"]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    package = tmp_path / "actum"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


@pytest.mark.req("003-48")
def test_the_decisions_of_this_version_are_those_on_record(tmp_path: Path) -> None:
    said = Terminal(tmp_path).json("doctor")
    assert said.json["run_decisions"] == []


@pytest.mark.req("003-48")
@pytest.mark.parametrize(
    ("module", "old", "new", "named"),
    [
        ("runs/decide.py", "MOST_ATTEMPTS = 5", "MOST_ATTEMPTS = 6", "correctionRecipeVersion"),
        ("runs/decide.py", "MOST_ATTEMPTS = 5", "MOST_ATTEMPTS = 5\nPATIENCE = 1", "PATIENCE"),
        ("work/step_caps.py", " > caps.", " >= caps.", "validationPolicyVersion"),
        ("runs/step_items.py", "must_change=True", "must_change=False", "correctionRecipeVersion"),
    ],
    ids=["another value", "an unregistered constant", "another comparison", "another cap"],
)
def test_a_changed_decision_without_a_version_is_named(
    copied: Path, module: str, old: str, new: str, named: str
) -> None:
    assert doctor_of(copied)[1] == []  # the control
    text = (copied / module).read_text()
    assert old in text
    (copied / module).write_text(text.replace(old, new, 1))
    code, found = doctor_of(copied)
    assert code == 1
    assert len(found) == 1
    assert found[0].startswith(f"{module}: ")
    assert named in found[0]


@pytest.mark.req("003-48")
def test_a_bumped_version_is_recorded_with_its_code(copied: Path) -> None:
    file = copied / "runs/contract/material.py"
    text = file.read_text()
    bumped = text.replace("PLANNER_POLICY_VERSION = 1", "PLANNER_POLICY_VERSION = 2")
    assert bumped != text
    file.write_text(bumped)
    code, found = doctor_of(copied)
    assert code == 1
    assert any("plannerPolicyVersion is 2 now" in line for line in found)
    recording = [sys.executable, "-m", "actum.runs.policy_surface"]
    environment = {**os.environ, "PYTHONPATH": str(copied.parent)}
    subprocess.run(recording, check=True, env=environment, cwd=copied.parent, capture_output=True)
    assert doctor_of(copied)[1] == []
