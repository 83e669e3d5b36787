"""What was looked at: paths mean what the system's own function says, and every change is seen."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import folders
from actum.registry import looks as module
from actum.registry.looks import Looks

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
        looks = Looks()
        assert looks.real(path) == os.path.realpath(path), path
        assert looks.hold()


def test_a_path_that_begins_nowhere_in_particular_is_not_kept(tmp_path: Path) -> None:
    looks = Looks()
    assert looks.real("some/where") == os.path.realpath("some/where")
    assert not looks.lasting
    (tmp_path / "round").symlink_to("round")
    circle = Looks()
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
    looks = Looks()
    assert looks.real(f"{tmp_path}/link/below") == f"{tmp_path}/folder/below"
    assert looks.real(f"{tmp_path}/absent/below") == f"{tmp_path}/absent/below"
    assert looks.status(str(tmp_path / "file")).st_size == 5
    assert looks.may(str(tmp_path / "program"), os.X_OK)
    assert looks.lasting and looks.hold()
    # What is written into a folder changes nothing of what paths through it mean.
    (tmp_path / "unrelated").write_text("")
    (tmp_path / "folder" / "unrelated").write_text("")
    assert looks.hold()
    change(tmp_path)
    assert not looks.hold()


def test_a_link_or_file_of_this_very_tick_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    _link(tmp_path / "link")
    for ask in (
        lambda looks: looks.status(str(tmp_path / "file")),
        lambda looks: looks.real(str(tmp_path / "link")),
    ):
        newest = max(os.lstat(tmp_path / name).st_ctime_ns for name in ("file", "link"))
        for tick, lasting in ((0, False), (newest + 1, True)):
            monkeypatch.setattr(module, "file_clock_ns", lambda tick=tick: tick)
            looks = Looks()
            ask(looks)
            assert looks.lasting is lasting


def test_what_cannot_be_looked_at_is_not_kept(tmp_path: Path) -> None:
    looks = Looks()
    with pytest.raises(FileNotFoundError):
        looks.status(str(tmp_path / "absent"))
    assert not looks.lasting


def test_a_link_that_leads_elsewhere_and_stays_the_same_link_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of /proc have no target of their own: the kernel tells it when it is asked."""
    clock = module.file_clock_ns
    monkeypatch.setattr(module, "file_clock_ns", lambda: clock() + 10**12)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    looks = Looks()
    assert looks.real("/proc/self/cwd") == str(tmp_path / "one")
    assert looks.lasting and looks.hold()
    monkeypatch.chdir(tmp_path / "other")
    assert not looks.hold()
    monkeypatch.chdir(tmp_path / "one")
    assert looks.hold()


_TICK_NS = 10_000_000  # of the slowest clock that a kernel is built with


def _next_tick() -> None:
    # Since Linux 6.13 a file's time can be ahead of the coarse clock, by up to one of its ticks.
    tick = module.file_clock_ns() + _TICK_NS
    while module.file_clock_ns() <= tick:
        time.sleep(0.001)


def _asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []

    def lstat(path: str) -> os.stat_result:
        paths.append(path)
        return os.stat(path, follow_symlinks=False)

    def access(path: str, *rest: object, **more: object) -> bool:
        paths.append(path)
        return os.path.lexists(path)

    watched = type(os)("os")
    watched.__dict__.update(os.__dict__, lstat=lstat, access=access)
    for asking in (module, folders):
        monkeypatch.setattr(asking, "os", watched)
    return paths


@pytest.mark.parametrize("change", [_swap_link, _folder_to_link, _new_name, _dangling_link])
def test_names_in_a_folder_that_is_the_same_are_not_asked_for_and_every_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    for name in ("folder", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("folder")
    monkeypatch.setattr(folders, "_COARSEST_NS", 0)
    _next_tick()
    looks = Looks()
    for name in ("link", "second", "absent/below"):
        looks.real(f"{tmp_path}/{name}")
    assert looks.lasting and looks.hold()
    asked = _asked(monkeypatch)
    assert looks.hold()
    inside = {f"{tmp_path}/{name}" for name in ("folder", "second", "absent")}
    if os.major(os.stat(tmp_path).st_dev):  # and not a file system in memory
        assert not inside & set(asked)
        assert str(tmp_path) in asked
    # Another name in it is nothing to us, and it is found out by asking for each.
    (tmp_path / "unrelated").write_text("")
    asked.clear()
    assert looks.hold()
    assert inside <= set(asked)
    _next_tick()
    assert looks.hold()
    _next_tick()
    change(tmp_path)
    assert not looks.hold()


def test_a_folder_that_changed_lately_says_nothing_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could change again and keep its times, so each name is asked for."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    looks = Looks()
    for name in ("one", "two", "absent"):
        looks.real(f"{tmp_path}/{name}")
    asked = _asked(monkeypatch)
    for _ in range(3):
        asked.clear()
        assert looks.hold()
        assert {f"{tmp_path}/{name}" for name in ("one", "two", "absent")} <= set(asked)


def test_whoever_was_held_up_while_looking_does_not_take_a_new_folder_for_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was looked at may have changed since, in the tick of the folder's own times."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    looks = Looks()
    for name in ("one", "two"):
        looks.real(f"{tmp_path}/{name}")
    inside = {f"{tmp_path}/{name}" for name in ("one", "two")}
    asked = _asked(monkeypatch)
    stopped = type(time)("time")
    stopped.__dict__.update(
        time.__dict__, time_ns=lambda: time.time_ns() + 10**10 * (inside <= set(asked))
    )
    monkeypatch.setattr(folders, "time", stopped)
    assert looks.hold()
    asked.clear()
    assert looks.hold()
    assert inside <= set(asked)
