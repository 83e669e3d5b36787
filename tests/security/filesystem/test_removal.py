"""The one remover: what it removes, and everything that it refuses to touch.

Trials that mount run in a child with a mount namespace of its own, as root and as an ordinary
user. Each has a control: a plain removal in the same place loses what the remover left.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import kernel, removal
from actum.removal import MARKER, RemovalRefused
from actum.workspace import namespace

Remove = Callable[[Path], object]


def apart(work: Callable[[], None]) -> None:
    """Run in a child that has mounts of its own."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            namespace.enter()
            work()
            code = 0
        except BaseException:  # noqa: BLE001 -- shown by pytest, and the exit code fails the test
            traceback.print_exc()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def bind(source: Path, target: Path) -> None:
    kernel.mount(str(source), str(target), "", kernel.MS_BIND)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/file").write_text("precious")
    return folder


@pytest.fixture
def room(tmp_path: Path) -> Path:
    folder = tmp_path / "room"
    removal.make(folder)
    (folder / "inside/er").mkdir(parents=True)
    (folder / "inside/er/file").write_text("ours")
    return folder


def is_whole(precious: Path) -> bool:
    return (precious / "deep/file").is_file()


def test_a_marked_folder_goes_with_everything_in_it(room: Path) -> None:
    assert removal.remove(room)
    assert not room.exists()
    assert removal.remove(room), "gone already is gone"
    assert removal.remove(room / "below"), "and so is what was in it"


def test_a_folder_without_a_marker_stays_as_it_is(precious: Path) -> None:
    with pytest.raises(RemovalRefused, match=MARKER):
        removal.remove(precious)
    with pytest.raises(RemovalRefused, match=MARKER):
        removal.remove_part(precious, "deep")
    assert is_whole(precious)


def test_a_marker_below_or_above_is_no_marker(precious: Path) -> None:
    (precious / "deep" / MARKER).write_text("")
    (precious.parent / MARKER).write_text("")
    with pytest.raises(RemovalRefused):
        removal.remove(precious)
    assert is_whole(precious)


@pytest.mark.parametrize("planted", ["link", "folder", "fifo"])
def test_only_a_regular_file_is_a_marker(precious: Path, room: Path, planted: str) -> None:
    marker = precious / MARKER
    if planted == "link":
        marker.symlink_to(room / MARKER)
    elif planted == "folder":
        marker.mkdir()
    else:
        os.mkfifo(marker)
    with pytest.raises(RemovalRefused):
        removal.remove(precious)
    assert is_whole(precious)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_marker_of_another_user_is_no_marker(precious: Path) -> None:
    (precious / MARKER).write_text("")
    os.chown(precious / MARKER, 12_345, 12_345)
    with pytest.raises(RemovalRefused):
        removal.remove(precious)
    assert is_whole(precious)


def test_a_full_folder_cannot_become_removable_by_accident(precious: Path) -> None:
    with pytest.raises(FileExistsError):
        removal.make(precious)
    assert not removal.is_removable(precious)


def test_links_are_removed_and_never_followed(precious: Path, room: Path) -> None:
    (room / "to-folder").symlink_to(precious)
    (room / "inside/to-folder").symlink_to(precious / "deep")
    (room / "to-file").symlink_to(precious / "deep/file")
    assert removal.remove(room)
    assert is_whole(precious)


def test_a_link_in_the_place_of_the_folder_is_refused(precious: Path, room: Path) -> None:
    (precious / MARKER).write_text("")
    link = room.with_name("link")
    link.symlink_to(precious)
    with pytest.raises(RemovalRefused):
        removal.remove(link)
    assert is_whole(precious)


_PLACES = {
    "a folder": "inside/mounted",
    "a folder that is deep": "inside/er/mounted",
    "the folder itself": "",
}


@pytest.mark.parametrize("where", _PLACES)
def test_a_tree_that_holds_a_mount_is_refused_before_the_first_name_goes(
    precious: Path, room: Path, where: str
) -> None:
    (precious / MARKER).write_text("")
    target = room / _PLACES[where]
    target.mkdir(exist_ok=True)

    def refused() -> None:
        bind(precious, target)
        with pytest.raises(RemovalRefused):
            removal.remove(room)
        assert is_whole(precious)
        if where != "the folder itself":
            assert (room / "inside/er/file").is_file(), "nothing of it went"

    apart(refused)
    assert is_whole(precious)

    def control() -> None:
        bind(precious, target)
        shutil.rmtree(room, ignore_errors=True)

    apart(control)
    assert not is_whole(precious), "a plain removal loses it"


def test_a_file_that_is_mounted_is_refused_too(precious: Path, room: Path) -> None:
    (room / "inside/mounted").write_text("")

    def refused() -> None:
        bind(precious / "deep/file", room / "inside/mounted")
        with pytest.raises(RemovalRefused, match="mounted"):
            removal.remove(room)
        assert (room / "inside/er/file").is_file()

    apart(refused)


def test_a_mount_that_the_list_does_not_show_is_still_not_crossed(
    precious: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wall: the kernel refuses to resolve across a mount."""
    monkeypatch.setattr(kernel, "mount_points", list)
    (room / "inside/mounted").mkdir()

    def left() -> None:
        bind(precious, room / "inside/mounted")
        assert not removal.remove(room)
        assert is_whole(precious)
        assert removal.is_removable(room), "the marker goes last"

    apart(left)
    assert is_whole(precious)
    assert removal.remove(room), "with the mount gone, the next removal finishes"


def test_odd_names_of_mount_points_are_read_as_they_are(precious: Path, room: Path) -> None:
    odd = room / "a b\tc\nd\\e"
    odd.mkdir()

    def refused() -> None:
        bind(precious, odd)
        assert str(odd) in kernel.mount_points()
        with pytest.raises(RemovalRefused):
            removal.remove(room)

    apart(refused)
    assert is_whole(precious)


def test_trees_that_resist_go_all_the_same(room: Path) -> None:
    anchor = os.open(room, os.O_RDONLY)
    here = os.dup(anchor)
    for _ in range(3_000):  # deeper than a stack, and longer than a path may be
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    os.close(anchor)
    for number in range(2_000):
        (room / f"inside/{number}").touch()
    (room / "closed/in").mkdir(parents=True)
    (room / "closed/in/file").touch()
    (room / "closed/in").chmod(0)
    (room / "closed").chmod(0o100)
    os.makedirs(os.fsencode(room) + b"/\xff/\n/ ")
    os.mkfifo(room / "fifo")
    assert removal.remove(room)
    assert not room.exists()


def test_what_cannot_be_removed_keeps_its_marker(room: Path) -> None:
    """Busy for as long as something is mounted on it, in the process that mounted it."""
    (room / "inside/busy").touch()

    def resisted() -> None:
        bind(room / "inside/er/file", room / "inside/busy")
        points = kernel.mount_points()
        kernel.mount_points = lambda: [each for each in points if not each.startswith(str(room))]
        assert not removal.remove(room)
        assert removal.is_removable(room)

    apart(resisted)
    assert removal.remove(room)


@pytest.mark.parametrize("name", ["..", ".", "", "inside/er", MARKER])
def test_a_part_is_one_name_of_the_folder(room: Path, name: str) -> None:
    with pytest.raises(RemovalRefused):
        removal.remove_part(room, name)
    assert (room / "inside/er/file").is_file()


def test_one_part_goes_and_the_rest_stays(room: Path) -> None:
    (room / "kept").touch()
    removal.remove_part(room, "inside")
    assert sorted(os.listdir(room)) == sorted([MARKER, "kept"])


def test_a_folder_that_cannot_be_marked_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(removal, "mark", fail)
    with pytest.raises(OSError, match="No space"):
        removal.make(tmp_path / "new")
    assert not (tmp_path / "new").exists()
