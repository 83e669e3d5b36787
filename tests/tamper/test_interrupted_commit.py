"""A commit that was decided and not finished: its intent, its stage, and what recovery keeps.

An undo is a commit like any other, and runs in this process: it is struck between two of its steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.workspace import commit

from .attacker import verify

pytestmark = pytest.mark.sandbox


class Struck(BaseException):
    """The process is gone."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in the middle of an undo: `a` is put back, `b` is not yet."""
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    for name in ("a", "b"):
        (root / name).write_text("before")
    (root / "agents").mkdir()
    steps = [{"tool": "shell", "stdin": "echo after > a; echo after > b"}]
    document = {"agent_id": "agent-1", "steps": steps}
    (root / "agents/agent-1.yaml").write_text(yaml.safe_dump(document))
    put = commit._put

    def struck(step: Any, *rest: Any) -> None:
        put(step, *rest)
        if step.path == b"a":
            raise Struck

    with Runtime.open(root, pool=False) as rt:
        item = {"id": "one", "agent_id": "agent-1", "description": "one"}
        done = rt.work(item)
        assert done.status == "success", done
        with monkeypatch.context() as patch, pytest.raises(Struck):
            patch.setattr(commit, "_put", struck)
            rt.work_items.undo(done.receipt_id)
    return root


def recovered(root: Path) -> None:
    with Runtime.open(root, pool=False):
        pass  # opening a project ends what was interrupted


def test_an_interrupted_commit_is_no_finding_before_and_after_recovery(root: Path) -> None:
    home = root / ".actum"
    assert [(root / name).read_text() for name in ("a", "b")] == ["before", "after\n"]
    assert len(list(home.glob("work/*/intent.json"))) == 1
    assert verify(home) == (0, [])
    assert len(list(home.glob("work/*/intent.json"))) == 1
    recovered(root)
    assert [(root / name).read_text() for name in ("a", "b")] == ["before", "before"]
    assert list(home.glob("work/*/intent.json")) == []
    assert verify(home) == (0, [])


def forged(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The intent with other contents, and the digest that fits them."""
    body = {**json.loads(document["body"]), **changes}
    text = json.dumps(body, sort_keys=True)
    return {"body": text, "sha256": commit.sha256_bytes(text.encode())}


def with_step(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The intent with one removal more."""
    removal = {"path": path, "kind": None, "mode": 0, "digest": "", "staged": ""}
    return forged(document, steps=[*json.loads(document["body"])["steps"], removal])


@pytest.mark.parametrize(
    "content",
    [
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"{}",
        lambda _: b"\xff",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"before", b"behind", 1),
        lambda text: json.dumps({**json.loads(text), "sha256": "0" * 64}).encode(),
        lambda text: json.dumps(forged(json.loads(text), room="other")).encode(),
        lambda text: json.dumps(forged(json.loads(text), record={})).encode(),
        lambda text: json.dumps(forged(json.loads(text), steps=[])).encode(),
        lambda text: json.dumps(with_step(json.loads(text), "actum.toml")).encode(),
    ],
)
def test_an_intent_that_was_changed_is_a_finding(root: Path, content: Any) -> None:
    (intent,) = (root / ".actum").glob("work/*/intent.json")
    whole = intent.read_bytes()
    changed = content(whole)
    assert changed != whole
    intent.write_bytes(changed)
    verdict = verify(root / ".actum")
    assert (verdict.code, bool(verdict.broken)) == (1, True)
    assert "intent.json" in verdict.text


def test_another_content_in_the_stage_is_a_finding(root: Path) -> None:
    (staged,) = (root / ".actum").glob("work/*/rooms/*/new/*")
    staged.write_text("planted")
    verdict = verify(root / ".actum")
    assert verdict.code == 1
    assert f"new/{staged.name}" in verdict.text


def test_what_recovery_kept_of_an_edit_is_bound(root: Path) -> None:
    # As editors save: by a rename. What is written in place is written into what an undo keeps.
    (root / "saved").write_text("by hand")
    (root / "saved").rename(root / "b")
    recovered(root)
    home = root / ".actum"
    (met,) = home.glob("work/*/kept/*/met/*")
    assert met.read_text() == "by hand"
    assert verify(home) == (0, [])
    met.write_text("by Hand")
    assert "met" in verify(home).text
    met.unlink()
    verdict = verify(home)
    assert verdict.code == 1
    assert "met" in verdict.text
    met.symlink_to(root / "b")
    assert verify(home).code == 1
    met.unlink()
    met.write_text("by hand")
    assert verify(home) == (0, [])
