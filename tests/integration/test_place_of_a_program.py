"""A program that no sandbox shows is refused before the start, by `check` as by `exec`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from actum import Outcome, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve

pytestmark = pytest.mark.sandbox


def with_path(root: Path, folder: Path) -> Runtime:
    """A project whose `shell` finds its program in `folder`."""
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    folder.mkdir()
    shutil.copy("/bin/sh", folder / "sh")
    file = root / "tools/shell/tool.yaml"
    file.write_text(f'{file.read_text()}\npath: ["{folder}"]\n')
    runtime = Runtime.open(root, pool=False)
    approve(root, runtime.keyring, "shell", by="b", evidence="e", date="2026-01-01")
    return runtime


def test_a_program_outside_the_system_is_refused_with_field_and_remedy(tmp_path: Path) -> None:
    root, folder = tmp_path / "project", tmp_path / "opt"
    with with_path(root, folder) as runtime:
        asked = {
            "tool_id": "TL-010",
            "inputs": {"command": "sh", "stdin": "echo ran", "working_directory": str(root)},
        }
        (foreseen,) = runtime.check(asked).violations
        result = runtime.execute(asked)
    assert result.outcome is Outcome.REJECTED
    assert result.reason_codes == ("EXECUTABLE_OUTSIDE",)
    assert result.violations == (foreseen,)
    assert (foreseen.field, foreseen.value) == ("tool.yaml path", str(folder / "sh"))
    assert "below /usr" in foreseen.message


def test_a_program_in_the_project_runs(tmp_path: Path) -> None:
    root = tmp_path / "project"
    with with_path(root, root / "programs") as runtime:
        result = runtime.exec("shell", stdin="echo ran", cwd=root).check()
    assert result.result is not None
    assert result.result.stdout == "ran\n"


def test_a_program_in_a_denied_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    with with_path(root, root / "programs") as runtime:
        denied = {"sandbox.filesystem.deny": ["programs"]}
        result = runtime.exec("shell", stdin="echo ran", cwd=root, set=denied)
    assert result.reason_codes == ("EXECUTABLE_OUTSIDE",)
