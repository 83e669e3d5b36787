"""What was looked at: paths mean what the system's own function says, and every change is seen."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.registry import path_snapshot as module
from actum.registry.path_snapshot import PathSnapshot

NAMES = ("a", "b", "c")
TARGETS = ("a", "b", "../a", "../b/c", "./b/../c", "..", "nowhere", "a/nowhere/../b", "/")


@pytest.mark.parametrize("seed", range(40))
def test_a_path_leads_where_the_system_says(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    folders = [tmp_path]
    for _ in range(10):
        new = choose.choice(folders) / choose.choice(NAMES)
        if os.path.lexists(new):
            continue
        match choose.choice(["folder", "file", "link", "link"]):
            case "folder":
                new.mkdir()
                folders.append(new)
            case "file":
                new.write_text("")
            case _:
                new.symlink_to(choose.choice([*TARGETS, str(tmp_path / "a")]))
    for _ in range(60):
        steps = (choose.choice([*NAMES, "..", ".", "", "nowhere"]) for _ in range(4))
        path = f"{choose.choice(folders)}/{'/'.join(steps)}"
        snapshot = PathSnapshot()
        assert snapshot.real(path) == os.path.realpath(path), path
        assert snapshot.hold()


def test_a_path_that_begins_nowhere_in_particular_is_not_kept(tmp_path: Path) -> None:
    snapshot = PathSnapshot()
    assert snapshot.real("some/where") == os.path.realpath("some/where")
    assert not snapshot.lasting
    (tmp_path / "round").symlink_to("round")
    circle = PathSnapshot()
    assert circle.real(str(tmp_path / "round")) == os.path.realpath(tmp_path / "round")
    assert not circle.lasting


def _link(path: Path) -> None:
    path.symlink_to("elsewhere")


def _swap_link(path: Path) -> None:
    (path / "link").unlink()
    (path / "link").symlink_to("other")


def _same_link_again(path: Path) -> None:
    (path / "link").unlink()
    (path / "link").symlink_to("folder")


def _folder_to_link(path: Path) -> None:
    (path / "folder").rename(path / "moved")
    (path / "folder").symlink_to("moved")


def _new_name(path: Path) -> None:
    (path / "absent").write_text("")


def _dangling_link(path: Path) -> None:
    (path / "absent").symlink_to("nowhere")


def _grown(path: Path) -> None:
    with (path / "file").open("a") as file:
        file.write("more")


def _mode(path: Path) -> None:
    (path / "file").chmod(0o600)


def _touched(path: Path) -> None:
    """Its times are set back; the one that tells cannot be."""
    before = (path / "file").stat()
    (path / "file").write_text("12345")
    os.utime(path / "file", ns=(before.st_atime_ns, before.st_mtime_ns))


def _no_longer_a_program(path: Path) -> None:
    (path / "program").chmod(0o644)


@pytest.mark.parametrize(
    "change",
    [
        _swap_link,
        _same_link_again,
        _folder_to_link,
        _new_name,
        _dangling_link,
        _grown,
        _mode,
        _touched,
        _no_longer_a_program,
    ],
)
def test_whatever_an_answer_rested_on_is_seen_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "file").write_text("54321")
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    # As if all of it were old.
    clock = module.file_clock_ns
    monkeypatch.setattr(module, "file_clock_ns", lambda: clock() + 10**12)
    snapshot = PathSnapshot()
    assert snapshot.real(f"{tmp_path}/link/below") == f"{tmp_path}/folder/below"
    assert snapshot.real(f"{tmp_path}/absent/below") == f"{tmp_path}/absent/below"
    assert snapshot.status(str(tmp_path / "file")).st_size == 5
    assert snapshot.may(str(tmp_path / "program"), os.X_OK)
    assert snapshot.lasting and snapshot.hold()
    # What is written into a folder changes nothing of what paths through it mean.
    (tmp_path / "unrelated").write_text("")
    (tmp_path / "folder" / "unrelated").write_text("")
    assert snapshot.hold()
    change(tmp_path)
    assert not snapshot.hold()


def test_a_link_or_file_of_this_very_tick_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    _link(tmp_path / "link")
    for ask in (
        lambda snapshot: snapshot.status(str(tmp_path / "file")),
        lambda snapshot: snapshot.real(str(tmp_path / "link")),
    ):
        newest = max(os.lstat(tmp_path / name).st_ctime_ns for name in ("file", "link"))
        for tick, lasting in ((0, False), (newest + 1, True)):
            monkeypatch.setattr(module, "file_clock_ns", lambda tick=tick: tick)
            snapshot = PathSnapshot()
            ask(snapshot)
            assert snapshot.lasting is lasting


def test_what_cannot_be_looked_at_is_not_kept(tmp_path: Path) -> None:
    snapshot = PathSnapshot()
    with pytest.raises(FileNotFoundError):
        snapshot.status(str(tmp_path / "absent"))
    assert not snapshot.lasting


def test_a_link_that_leads_elsewhere_and_stays_the_same_link_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of /proc have no target of their own: the kernel tells it when it is asked."""
    clock = module.file_clock_ns
    monkeypatch.setattr(module, "file_clock_ns", lambda: clock() + 10**12)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    snapshot = PathSnapshot()
    assert snapshot.real("/proc/self/cwd") == str(tmp_path / "one")
    assert snapshot.lasting and snapshot.hold()
    monkeypatch.chdir(tmp_path / "other")
    assert not snapshot.hold()
    monkeypatch.chdir(tmp_path / "one")
    assert snapshot.hold()
