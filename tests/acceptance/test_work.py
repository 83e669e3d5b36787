"""The example of a graph of work items, as a new user runs it; then rehearsed, and taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .terminal import Terminal

EXAMPLE = Path(__file__).parents[2] / "examples" / "work"


@pytest.fixture
def small(fresh: Terminal) -> Terminal:
    shutil.copytree(EXAMPLE, fresh.folder, dirs_exist_ok=True)
    return fresh


def test_two_are_committed_and_one_is_denied(small: Terminal) -> None:
    told = small.actum("work", "work.yaml")
    assert told.code == 3, told
    assert "2 of 3 work items committed" in told.text
    assert "Exceeded max files: 6 > 3" in told.aside
    assert "level 1: readme" in told.aside
    assert (small.folder / "hello.sh").read_text() == "echo hello\n"
    assert "hello.sh" in (small.folder / "README.md").read_text()
    assert not (small.folder / "a.txt").exists()


def test_a_rehearsal_commits_nothing_and_shows_lines(small: Terminal) -> None:
    told = small.actum("work", "work.yaml", "--dry-run")
    assert told.code == 3, told
    assert "+echo hello" in told.text
    assert not (small.folder / "hello.sh").exists()


def test_what_was_committed_can_be_taken_back(small: Terminal) -> None:
    done = small.json("work", "work.yaml").json
    assert done["levels"] == [["everything", "greeting"], ["readme"]]
    receipt = done["results"]["readme"]["receipt_id"]
    assert small.actum("undo", receipt).code == 0
    assert not (small.folder / "README.md").exists()
    assert (small.folder / "hello.sh").exists()
    again = small.json("undo", receipt)
    assert (again.code, again.json["error"]["code"]) == (3, "UNDO_STALE")


def test_a_cycle_is_refused_before_anything_runs(small: Terminal) -> None:
    text = (small.folder / "work.yaml").read_text()
    (small.folder / "work.yaml").write_text(
        text.replace(
            "description: Write the greeting", "description: x\n    dependencies: [readme]"
        )
    )
    told = small.json("work", "work.yaml")
    assert (told.code, told.json["error"]["code"]) == (3, "WORK_CYCLE")
    assert not (small.folder / "hello.sh").exists()
