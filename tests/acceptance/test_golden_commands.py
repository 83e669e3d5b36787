"""Golden outputs by command."""

from __future__ import annotations

import pytest

from .terminal import Terminal


@pytest.mark.sandbox
def test_recorded_expected_and_removed(fresh: Terminal) -> None:
    project = fresh
    (project.folder / "s.sh").write_text("echo hi\n")
    asked = ("shell", "--stdin", "s.sh", "--set", "sandbox.filesystem.write=[]")
    answer = project.actum("golden", "record", *asked, "--by", "ada", "--why", "right")
    assert answer.code == 0, answer.aside
    listed = project.actum("golden", "list")
    assert "TL-010" in listed.text
    key = listed.text.splitlines()[-1].split()[0]
    assert "by: ada" in project.actum("golden", "show", key).text
    expecting = (*asked, "--set", 'outputs.stdout="expected"')
    assert project.actum("exec", *expecting).code == 0
    assert project.actum("golden", "remove", key).code == 0
    assert project.actum("exec", *expecting).code == 3
    assert project.actum("verify", "--all").code == 0


@pytest.mark.sandbox
def test_replay_by_command(fresh: Terminal) -> None:
    asked = ("shell", "--stdin", "s.sh")
    (fresh.folder / "s.sh").write_text("echo hi; cat data\n")
    (fresh.folder / "data").write_text("one\n")
    first = fresh.json("exec", *asked).json["execution_id"]
    answer = fresh.actum("replay", first, *asked)
    assert (answer.code, answer.text) == (0, "identical\n")
    (fresh.folder / "data").write_text("other\n")
    answer = fresh.actum("replay", first, *asked)
    assert (answer.code, answer.text.splitlines()[0]) == (1, "diverged")
    assert fresh.actum("replay", first, "shell", "--stdin", "data").code == 3
