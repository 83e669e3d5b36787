"""The frozen state of a level is the workspace as it was, whatever happens beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum.errors import Refused
from actum.workspace import files, level_base
from actum.workspace.space import Space

_LARGE = 2 << 20  #: gets a second name in place of a copy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    base = tmp_path / "project"
    (base / "folder").mkdir(parents=True)
    (base / "folder/small").write_text("small")
    (base / "large").write_bytes(bytes(_LARGE))
    return base


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def _space(home: Path, project: Path) -> Space:
    home.mkdir(mode=0o700, exist_ok=True)
    return Space(home, project)


def test_a_large_file_gets_a_second_name(tmp_path: Path, project: Path) -> None:
    space = _space(tmp_path / "home", project)
    with space.held(alone=False), level_base.frozen(space) as base:
        assert (base.tree / "large").samefile(project / "large")
        assert not (base.tree / "folder/small").samefile(project / "folder/small")


def test_a_home_on_another_file_system_has_copies(other_disk: Path, project: Path) -> None:
    space = _space(other_disk / "home", project)
    with space.held(alone=False), level_base.frozen(space) as base:
        assert (base.tree / "large").read_bytes() == bytes(_LARGE)
        assert (base.tree / "folder/small").read_text() == "small"


def test_a_name_that_vanishes_meanwhile_is_left_out(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor that saves, or a program with temporary files, is no reason to fail."""
    passing = project / "folder/.save~"
    passing.write_text("not saved yet")
    look = files.look

    def look_then_remove(name: bytes, folder: int) -> os.stat_result | None:
        found = look(name, folder)
        if name == b".save~":
            passing.unlink(missing_ok=True)
        return found

    copy_tree = level_base.copy_tree

    def copy_while_it_vanishes(*given: Any, **named: Any) -> int:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(files, "look", look_then_remove)
            return copy_tree(*given, **named)

    monkeypatch.setattr(level_base, "copy_tree", copy_while_it_vanishes)
    space = _space(tmp_path / "home", project)
    with space.held(alone=False), level_base.frozen(space) as base:
        assert not (base.tree / "folder/.save~").exists()
        assert (base.tree / "folder/small").read_text() == "small"


def test_a_workspace_that_never_rests_is_refused(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_tree = level_base.copy_tree

    def change_meanwhile(*given: Any, **named: Any) -> int:
        (project / "folder/small").write_text(os.urandom(8).hex())
        return copy_tree(*given, **named)

    monkeypatch.setattr(level_base, "copy_tree", change_meanwhile)
    space = _space(tmp_path / "home", project)
    with (
        space.held(alone=False),
        pytest.raises(Refused) as refusal,
        level_base.frozen(space),
    ):
        pass
    assert refusal.value.code == "WORKSPACE_BUSY"
