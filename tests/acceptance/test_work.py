"""The example of a graph of work items, as a new user runs it; then rehearsed, and taken back."""

from __future__ import annotations

import base64
import json
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
    undone = small.actum("undo", receipt)
    assert (undone.code, undone.text.split(":")[0]) == (0, "✅ Undone")
    assert not (small.folder / "README.md").exists()
    assert (small.folder / "hello.sh").exists()
    again = small.json("undo", receipt)
    assert (again.code, again.json["error"]["code"]) == (3, "UNDO_STALE")
    assert "undone already" in again.json["error"]["message"]
    assert "'nothing'" in small.actum("undo", "nothing").aside


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


def test_the_receipt_of_a_work_item_is_verified_by_id_by_file_and_alone(small: Terminal) -> None:
    done = small.json("work", "work.yaml").json
    key = small.folder / "key.pub"
    key.write_text(small.actum("keys", "show").text)
    for name in ("readme", "everything"):  # one that was committed, one that was denied
        receipt, path = (done["results"][name][word] for word in ("receipt_id", "receipt_path"))
        for words in ((receipt,), (path,), (path, "--key", str(key))):
            told = small.actum("verify", *words)
            assert (told.code, told.text.splitlines()[-1][:9]) == (0, "Verified:"), told
            assert f"work receipt {receipt}: signature" in told.text
        assert receipt in small.actum("receipts", "show", receipt).text
    envelope = json.loads(Path(path).read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["status"] = "success"
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    forged = small.folder / "forged.json"
    forged.write_text(json.dumps(envelope))
    for words in ((str(forged),), (str(forged), "--key", str(key))):
        told = small.actum("verify", *words)
        assert told.code == 1, told
        assert "BROKEN work receipt: signature" in told.text
    # Another home trusts the key and still has no such receipt.
    assert small.actum("verify", "nothing").code == 3
