"""Actum is installed in the project that its tools write to, as in a virtual environment there.

What a tool plants among Actum's own files would run on the host with the next command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import actum
from actum.contract.model import RunnerKind
from actum.project import create
from common.settings import add_settings

pytestmark = pytest.mark.sandbox

_LIBRARIES = f"lib/python3.{sys.version_info.minor}/site-packages"
_PLANT = f"""printf 'import os; open("%s", "w").close()\\n' "$1" > .venv/{_LIBRARIES}/planted.pth"""
PLANTS = {
    "a library's start": _PLANT,
    "the interpreter": "cd .venv/bin; cp /bin/false new; mv -f new python",
    "the command": "printf '#!/bin/sh\\n' > .venv/bin/actum",
    "where the interpreter is": "echo home = /tmp > .venv/pyvenv.cfg",
}


class Installed:
    """A project with an Actum of its own, by a virtual environment."""

    def __init__(self, folder: Path) -> None:
        self.root, self.canary = folder / "project", folder / "canary"
        create(self.root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
        venv = self.root / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        # In the place of an installation from the network.
        (venv / _LIBRARIES / "actum.pth").write_text(
            "\n".join(
                (
                    os.path.dirname(os.path.dirname(actum.__file__)),
                    *(path for path in sys.path if path.endswith("site-packages")),
                )
            )
        )
        self.python = venv / "bin" / "python"

    def actum(self, *words: str, stdin: str = "") -> dict[str, Any]:
        done = subprocess.run(
            [self.python, "-P", "-m", "actum.doors.cli.main", "--json", *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.root,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def run(self, script: str) -> dict[str, Any]:
        return self.actum("exec", "shell", "--stdin", "-", "--", str(self.canary), stdin=script)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_what_the_next_command_would_execute_is_held(installed: Installed, engine: str) -> None:
    add_settings(installed.root, f'\n[workspace]\nengine = "{engine}"\n')
    held = installed.run(_PLANT)["workspace"]
    assert held["state"] == "held", held
    assert held["why"] == [f"{installed.root}/.venv/{_LIBRARIES}/planted.pth"]
    installed.actum("tools", "list")
    assert not installed.canary.exists()
    # The control: once a person has approved it, the host executes it.
    decision = ("--by", "user:other", "--why", "a test")
    installed.actum("approvals", "approve", held["request_id"], *decision)
    installed.actum("tools", "list")
    assert installed.canary.exists()


@pytest.mark.parametrize("plant", PLANTS)
def test_each_part_of_an_environment_is_held(installed: Installed, plant: str) -> None:
    assert installed.run(PLANTS[plant])["workspace"]["state"] == "held"


def test_an_environment_that_is_a_link_is_held_too(installed: Installed) -> None:
    venv = installed.root / ".venv"
    venv.rename(installed.root / "real")
    venv.symlink_to("real")
    script = "rm .venv; cp -a real new; ln -s new .venv"
    assert installed.run(script)["workspace"]["state"] == "held"
    assert installed.run(_PLANT)["workspace"]["state"] == "held"


def test_another_environment_of_the_project_is_not(installed: Installed) -> None:
    script = f"mkdir -p other/{_LIBRARIES}; echo > other/{_LIBRARIES}/planted.pth; mkdir .venv/x"
    assert installed.run(script)["workspace"]["state"] == "committed"


def test_written_directly_they_are_covered(installed: Installed) -> None:
    add_settings(installed.root, '\n[workspace]\nchanges = "direct"\n')
    found = installed.run(f"echo > .venv/fine; {_PLANT}")
    assert "Read-only file system" in found["result"]["stderr"], found
    assert (installed.root / ".venv" / "fine").exists()
    assert not (installed.root / ".venv" / _LIBRARIES / "planted.pth").exists()
