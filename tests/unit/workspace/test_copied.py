"""A copied folder is what was there; what differs afterwards is found, and who changed it."""

from __future__ import annotations

import mmap
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.value import replace
from actum.workspace import copied, files
from actum.workspace.copied import Start
from actum.workspace.copies import Bounds
from actum.workspace.upper import Found

_LARGE = 300_000  #: more than is read as a whole


class Copied:
    """A folder and its copy, for a test that plays the tool and the host."""

    def __init__(self, folder: Path) -> None:
        self.base, self.room = folder / "base", folder / "room"
        self.copy = self.room / "copy"
        self.base.mkdir()
        self.room.mkdir()
        self.start: Start | None = None

    def make(self, *covered: str, bounds: Bounds | None = None) -> None:
        names = tuple(str(self.base / name) for name in covered)
        self.start = copied.make(str(self.base), self.room, names, bounds or Bounds())
        time.sleep(0.02)  # what Transaction.wait waits for

    def look(self, *, over: bool = False, stamped: bool | None = None) -> Found:
        assert self.start is not None
        start = self.start if stamped is None else replace(self.start, stamped=stamped)
        above, below = (os.open(each, files.FOLDER_FLAGS) for each in (self.copy, self.base))
        try:
            return copied.changes(above, below, start, over=over)
        finally:
            os.close(above)
            os.close(below)


@pytest.fixture
def both(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def _actions(found: Found) -> dict[bytes, str]:
    return {change.path: change.action.value for change in found.delta}


def test_the_copy_has_all_that_the_folder_has(both: Copied) -> None:
    base, copy = both.base, both.copy
    (base / "d").mkdir(mode=0o750)
    (base / "d" / "file").write_text("x")
    (base / "d" / "file").chmod(0o640)
    os.utime(base / "d" / "file", ns=(1_500_000_000_000_000_000, 1_600_000_000_123_456_789))
    os.link(base / "d" / "file", base / "second")
    (base / "link").symlink_to("nowhere")
    (base / "large").write_bytes(os.urandom(_LARGE))
    with (base / "sparse").open("wb") as file:
        file.truncate(50 << 20)
        file.seek(10 << 20)
        file.write(b"in the middle")
    (base / os.fsdecode(b"\xff\xfe")).write_text("bytes")
    os.setxattr(base / "second", "user.note", b"kept")
    os.utime(base / "d", ns=(0, 1_600_000_000_000_000_000))
    both.make()
    assert (copy / "d" / "file").read_text() == "x"
    assert stat.S_IMODE((copy / "d").stat().st_mode) == 0o750
    found = (copy / "d" / "file").stat()
    assert stat.S_IMODE(found.st_mode) == 0o640
    assert found.st_mtime_ns == 1_600_000_000_123_456_789
    assert found.st_ino == (copy / "second").stat().st_ino
    assert found.st_ino != (base / "second").stat().st_ino
    assert found.st_nlink == 2
    assert (copy / "d").stat().st_mtime_ns == 1_600_000_000_000_000_000
    assert os.readlink(copy / "link") == "nowhere"
    assert (copy / "large").read_bytes() == (base / "large").read_bytes()
    assert (copy / "sparse").read_bytes() == (base / "sparse").read_bytes()
    assert (copy / "sparse").stat().st_blocks * 512 < 1 << 20
    assert (copy / os.fsdecode(b"\xff\xfe")).read_text() == "bytes"
    assert os.getxattr(copy / "second", "user.note") == b"kept"
    assert both.look() == Found(delta=(), overtaken=(), left_out=())


def test_a_permission_list_is_copied_too(both: Copied) -> None:
    # An access list that lets user 12345 read; without it the mask would be the group's right.
    entries = [(1, 6, 2**32 - 1), (2, 4, 12345), (4, 0, 2**32 - 1), (16, 4, 2**32 - 1)]
    entries.append((32, 0, 2**32 - 1))
    acl = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + right.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, right, who in entries
    )
    (both.base / "file").write_text("x")
    os.setxattr(both.base / "file", "system.posix_acl_access", acl)
    both.make()
    assert os.getxattr(both.copy / "file", "system.posix_acl_access") == acl


@pytest.mark.parametrize("stamped", [True, False])
def test_what_a_tool_changes_is_found(both: Copied, stamped: bool) -> None:
    base, copy = both.base, both.copy
    for name in ("same", "changed", "touched", "mode", "gone", "d/inner", "d/e/deep", "was-file"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("before")
    (base / "was-folder").mkdir()
    (base / "was-folder" / "inner").write_text("x")
    (base / "kept").mkdir()
    both.make()
    (copy / "changed").write_text("after!")  # of the same length
    before = (copy / "changed").stat()
    os.utime(copy / "changed", ns=(before.st_atime_ns, (base / "changed").stat().st_mtime_ns))
    os.utime(copy / "touched")
    (copy / "mode").chmod(0o600)
    (copy / "gone").unlink()
    for name in ("inner", "e/deep"):
        (copy / "d" / name).unlink()
    (copy / "d" / "e").rmdir()
    (copy / "d").rmdir()
    (copy / "was-file").unlink()
    (copy / "was-file").mkdir()
    (copy / "was-file" / "new").write_text("new")
    (copy / "was-folder" / "inner").unlink()
    (copy / "was-folder").rmdir()
    (copy / "was-folder").symlink_to("x")
    os.mkfifo(copy / "pipe")
    found = both.look(stamped=stamped)
    assert _actions(found) == {
        b"changed": "modified",
        b"mode": "modified",
        b"gone": "deleted",
        b"d": "deleted",
        b"d/inner": "deleted",
        b"d/e": "deleted",
        b"d/e/deep": "deleted",
        b"was-file": "modified",
        b"was-file/new": "created",
        b"was-folder": "modified",
        b"was-folder/inner": "deleted",
    }
    assert found.overtaken == ()
    assert found.left_out == (b"pipe",)


def test_a_write_through_mapped_memory_is_found(both: Copied) -> None:
    (both.base / "file").write_bytes(b"a" * 8192)
    both.make()
    with (both.copy / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[5000] = ord("b")
    assert _actions(both.look()) == {b"file": "modified"}


def test_stamps_are_not_trusted_where_times_are_coarse_or_stay(both: Copied) -> None:
    both.make()
    assert both.start is not None
    kind = os.open(both.copy, files.FOLDER_FLAGS)
    try:
        from actum import kernel

        assert both.start.stamped == (kernel.file_system_type(kind) in copied._KEEPS_TIMES)
    finally:
        os.close(kind)
    shm = os.open("/dev/shm", files.FOLDER_FLAGS)
    try:
        assert not copied._keeps_times(shm)
    finally:
        os.close(shm)


def test_writing_one_of_two_names_changes_both(both: Copied) -> None:
    (both.base / "one").write_text("x")
    os.link(both.base / "one", both.base / "two")
    both.make()
    (both.copy / "one").write_text("y")
    assert _actions(both.look()) == {b"one": "modified", b"two": "modified"}


HOST: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], dict[bytes, str]]] = {
    "both write a file": (
        lambda copy: (copy / "file").write_text("tool"),
        lambda base: (base / "file").write_text("host"),
        {b"file": "modified"},
    ),
    "the host changes a mode": (
        lambda copy: (copy / "file").write_text("tool"),
        lambda base: (base / "file").chmod(0o600),
        {b"file": "modified"},
    ),
    "the host removes what the tool writes": (
        lambda copy: (copy / "file").write_text("tool"),
        lambda base: (base / "file").unlink(),
        {b"file": "created"},
    ),
    "the host writes what the tool removes": (
        lambda copy: (copy / "file").unlink(),
        lambda base: (base / "file").write_text("host"),
        {b"file": "deleted"},
    ),
    "both create a file": (
        lambda copy: (copy / "new").write_text("tool"),
        lambda base: (base / "new").write_text("host"),
        {b"new": "modified"},
    ),
}


@pytest.mark.parametrize("case", HOST)
def test_what_the_host_changed_meanwhile_is_a_conflict(both: Copied, case: str) -> None:
    tool, host, expected = HOST[case]
    (both.base / "file").write_text("before")
    both.make()
    tool(both.copy)
    assert both.look().overtaken == ()
    host(both.base)
    found = both.look()
    assert _actions(found) == expected
    assert found.overtaken == tuple(expected)
    assert both.look(over=True).overtaken == ()
    assert both.look(over=True).delta == found.delta


def test_what_the_host_does_elsewhere_is_no_change_and_no_conflict(both: Copied) -> None:
    for name in ("a", "b", "d/c", "d/e"):
        (both.base / name).parent.mkdir(exist_ok=True)
        (both.base / name).write_text("before")
    both.make()
    (both.copy / "a").write_text("tool")
    (both.base / "b").write_text("host")
    (both.base / "d" / "c").unlink()
    (both.base / "d" / "added").write_text("host")
    os.utime(both.base / "a")  # only looked at by an editor
    found = both.look()
    assert _actions(found) == {b"a": "modified"}
    assert found.overtaken == ()


def test_what_both_made_the_same_is_no_change(both: Copied) -> None:
    (both.base / "file").write_text("before")
    both.make()
    for top in (both.copy, both.base):
        (top / "file").write_text("after")
        (top / "new").mkdir()
    assert both.look() == Found(delta=(), overtaken=(), left_out=())


def test_a_folder_that_the_tool_removed_and_the_host_filled_is_a_conflict(both: Copied) -> None:
    (both.base / "d").mkdir()
    both.make()
    (both.copy / "d").rmdir()
    (both.base / "d" / "sub").mkdir()
    (both.base / "d" / "sub" / "file").write_text("host")
    found = both.look()
    assert found.overtaken == (b"d/sub", b"d/sub/file")
    assert _actions(found) == {b"d": "deleted", b"d/sub": "deleted", b"d/sub/file": "deleted"}


def test_a_folder_that_the_host_removed_and_the_tool_filled_is_a_conflict(both: Copied) -> None:
    (both.base / "d" / "e").mkdir(parents=True)
    both.make()
    (both.copy / "d" / "e" / "file").write_text("tool")
    (both.base / "d" / "e").rmdir()
    (both.base / "d").rmdir()
    found = both.look()
    assert found.overtaken == (b"d", b"d/e")
    assert _actions(found) == {b"d": "created", b"d/e": "created", b"d/e/file": "created"}


def test_sockets_stay_unless_their_folder_goes(both: Copied) -> None:
    (both.base / "d").mkdir()
    folder = os.open(both.base, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(f"/proc/self/fd/{folder}/socket")
        other.bind(f"/proc/self/fd/{folder}/d/socket")
    os.close(folder)
    both.make()
    assert sorted(os.listdir(both.copy)) == ["d"]
    assert both.look().delta == ()
    (both.copy / "d").rmdir()
    found = both.look()
    assert _actions(found) == {b"d": "deleted", b"d/socket": "deleted"}
    assert found.overtaken == ()


def test_covered_paths_are_hollow_and_never_a_change(both: Copied) -> None:
    (both.base / "secret").mkdir()
    (both.base / "secret" / "key").write_text("secret")
    (both.base / "d").mkdir()
    (both.base / "d" / "token").write_text("secret")
    both.make("secret", "d/token", "missing")
    assert os.listdir(both.copy / "secret") == []
    assert (both.copy / "d" / "token").read_bytes() == b""
    assert both.look() == Found(delta=(), overtaken=(), left_out=())


def test_the_list_of_what_was_copied_can_be_read_by_another_process(both: Copied) -> None:
    (both.base / os.fsdecode(b"\xff")).write_text("x")
    (both.base / "secret").mkdir()
    (both.base / "link").symlink_to("x")
    both.make("secret")
    assert both.start is not None
    both.start.write(both.room)
    assert Start.read(both.room) == both.start


@pytest.mark.parametrize("bounds", [Bounds(mib=1), Bounds(names=9)])
def test_a_folder_beyond_the_bounds_is_refused_before_anything_is_copied(
    both: Copied, bounds: Bounds
) -> None:
    for number in range(8):
        (both.base / f"{number}").write_bytes(bytes(150_000))
    (both.base / "d").mkdir()
    both.make()  # the control: within the usual bounds, and within these
    (both.room / "copy").rename(both.room / "first")
    (both.base / "d" / "more").write_text("x")
    if bounds.mib == 1:
        with pytest.raises(Refused, match="more than 200000 names or 1 MiB") as refusal:
            both.make(bounds=bounds)
    else:
        with pytest.raises(Refused, match="more than 9 names or 2048 MiB") as refusal:
            both.make(bounds=bounds)
    assert refusal.value.code == "COPY_TOO_LARGE"
    assert 'changes = "direct"' in str(refusal.value.remedy)
    assert not both.copy.exists()


def test_what_an_ordinary_user_cannot_read_is_refused_by_name(both: Copied) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (both.base / "d").mkdir()
    (both.base / "d" / "closed").write_text("x")
    (both.base / "d" / "closed").chmod(0)
    with pytest.raises(Refused, match="d/closed cannot be read"):
        both.make()


def test_ten_thousand_files(both: Copied) -> None:
    for number in range(10_000):
        folder = both.base / f"d{number % 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}").write_text(str(number))
    both.make()
    (both.copy / "d7" / "107").write_text("after")
    (both.copy / "d99" / "9999").unlink()
    assert _actions(both.look()) == {b"d7/107": "modified", b"d99/9999": "deleted"}
