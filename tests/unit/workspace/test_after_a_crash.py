"""A commit that was decided is carried through later, and what people did meanwhile is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from actum.contract.canonical import sha256_bytes
from actum.workspace import commit
from actum.workspace.commit import Step, WorkspaceDamaged
from actum.workspace.space import Space
from actum.workspace.tree import Kind


class Struck(Exception):
    """In the place of a kill."""


class Scene:
    """A commit that edits `edit`, removes `gone`, makes `made`, and is struck on its way."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "base"
        self.base.mkdir()
        (self.base / "edit").write_text("old")
        (self.base / "gone").write_text("gone")
        self.space = Space(folder / "home", self.base)
        self.room = self.space.run_folder("one")
        for name in ("new", "old"):
            (self.room / name).mkdir()
        (self.room / "new/0").write_text("new")
        (self.room / "new/2").write_text("made")
        self.finished: list[Any] = []

    def strike(self, monkeypatch: pytest.MonkeyPatch, after: Callable[[Step], bool]) -> None:
        """Killed when the step for which `after` holds was done."""
        forward = (
            _file(b"edit", "new", "0"),
            Step(path=b"gone", kind=None),
            _file(b"made", "made", "2"),
        )
        backward = (
            _file(b"edit", "old", "0"),
            _file(b"gone", "gone", "1"),
            Step(path=b"made", kind=None),
        )
        staged = commit.Staged(forward=forward, backward=backward)
        with monkeypatch.context() as patch:
            for name in ("_clear", "_put"):
                patch.setattr(commit, name, _struck(getattr(commit, name), name, after))
            with pytest.raises(Struck):
                self.space.change(self.room, staged, {"run": 1}, self.finished.append)

    def recover(self) -> dict[str, str]:
        assert self.finished == []
        assert self.space.recover(self.finished.append)
        assert [{**record, "met": None} for record in self.finished] == [{"run": 1, "met": None}]
        assert not self.space.recover(self.finished.append)
        return {path.name: path.read_text() for path in self.base.iterdir()}

    def met(self) -> list[str]:
        return [path.read_text() for path in (self.space.folder / "kept/one").glob("met/*")]


def _file(path: bytes, content: str, staged: str) -> Step:
    digest = blake3(content.encode()).hexdigest()
    return Step(path=path, kind=Kind.FILE, mode=0o644, digest=digest, staged=staged)


def _struck(real: Callable[..., None], name: str, after: Callable[[Step], bool]) -> Any:
    def step_then_strike(step: Step, *rest: Any) -> None:
        real(step, *rest)
        if name == "_put" and after(step):
            raise Struck
        if name == "_clear" and step.path == b"edit" and after(step) and not step.staged:
            raise Struck

    return step_then_strike


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def _at(path: bytes) -> Callable[[Step], bool]:
    return lambda step: step.path == path


@pytest.mark.req("002-35")
@pytest.mark.parametrize("where", [b"edit", b"made"])
def test_nobody_did_anything(scene: Scene, monkeypatch: pytest.MonkeyPatch, where: bytes) -> None:
    scene.strike(monkeypatch, _at(where))
    assert scene.recover() == {"edit": "new", "made": "made"}
    assert scene.met() == []


def test_what_was_brought_in_and_edited_since_stays_edited(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.strike(monkeypatch, _at(b"made"))
    (scene.base / "edit").write_text("by hand")
    (scene.base / "made").unlink()
    assert scene.recover() == {"edit": "by hand"}


def test_what_was_made_where_something_went_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.strike(monkeypatch, _at(b"edit"))
    (scene.base / "gone").write_text("another")
    assert scene.recover() == {"edit": "new", "gone": "another", "made": "made"}


def test_what_is_still_to_be_replaced_is_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.strike(monkeypatch, _at(b"edit"))
    (scene.base / "made").write_text("by hand")
    assert scene.recover() == {"edit": "new", "made": "made"}
    assert scene.met() == ["by hand"]
    # The record that closes the run gets its digest.
    assert scene.finished[0]["met"] == {"2": sha256_bytes(b"by hand")}


def test_a_folder_of_somebody_in_the_way_is_named_and_can_be_moved(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.strike(monkeypatch, _at(b"edit"))
    (scene.base / "made").mkdir()
    (scene.base / "made" / "theirs").write_text("theirs")
    with pytest.raises(WorkspaceDamaged, match="made"):
        scene.space.recover(scene.finished.append)
    (scene.base / "made").rename(scene.base / "moved")
    (scene.base / "moved" / "theirs").rename(scene.base / "theirs")
    (scene.base / "moved").rmdir()
    assert scene.recover() == {"edit": "new", "made": "made", "theirs": "theirs"}


_APPLY = """
import os, sys
from pathlib import Path
from actum.workspace import commit
from actum.workspace.commit import Step
from actum.workspace.tree import Kind
top = Path(sys.argv[1])
steps = [
    Step(path=b"closed/gone", kind=None),
    Step(path=b"closed/new", kind=Kind.FILE, mode=0o644, staged="0"),
    Step(path=b"going", kind=None),
    Step(path=b"going/inside", kind=None),
]
commit.apply(steps, os.open(top / "base", os.O_RDONLY), top / "new")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_an_ordinary_user_changes_a_folder_that_they_closed_to_themselves(tmp_path: Path) -> None:
    """Root may write anywhere; their own owner may not, and past the decision it must be done."""
    user = 65_534
    for name in ("base/closed/gone", "base/going/inside", "new/0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, user, user)
    for name in ("closed", "going"):
        (tmp_path / "base" / name).chmod(0o555)
    for folder in tmp_path.parents:  # the user must get here
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", _APPLY, str(tmp_path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        user=user,
        group=user,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path / "base") == ["closed"]
    assert os.listdir(tmp_path / "base/closed") == ["new"]
    assert (tmp_path / "base/closed").stat().st_mode & 0o777 == 0o555
