"""The index believes a file's stamps only when they prove something, and costs what changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.workspace.index import Index
from actum.workspace.space import Space
from actum.workspace.tree import shown


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    for name in ("a", "deep/er/b", "c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def _settled(index: Index, base: Path) -> None:
    """Scanned when every stamp was old enough to be believed."""
    time.sleep(0.05)
    index.scan(base)


@pytest.mark.req("002-22")
def test_times_and_owners_are_no_part_of_a_state(tmp_path: Path, base: Path) -> None:
    index = Index(tmp_path / "index")
    first = index.scan(base).state
    os.utime(base / "a", (1, 1))
    os.utime(base / "deep", (1, 1))
    assert index.scan(base).state == first
    os.rename(base / "a", base / "other")
    (base / "a").write_text("a")
    os.unlink(base / "other")
    assert index.scan(base).state == first


@pytest.mark.req("002-22")
@pytest.mark.parametrize(
    "change",
    [
        lambda base: (base / "a").write_text("A"),
        lambda base: (base / "a").chmod(0o600),
        lambda base: (base / "deep").chmod(0o700),
        lambda base: base.chmod(0o700),
        lambda base: (base / "empty").mkdir(),
        lambda base: (base / "c").unlink(),
        lambda base: (base / "c").rename(base / "d"),
        lambda base: (base / "link").symlink_to("a"),
    ],
)
def test_everything_else_is(tmp_path: Path, base: Path, change) -> None:
    index = Index(tmp_path / "index")
    first = index.scan(base).state
    change(base)
    second = index.scan(base).state
    assert second.hash != first.hash
    assert Index(tmp_path / "another").scan(base).state == second


def test_only_what_changed_is_read(tmp_path: Path, base: Path) -> None:
    index = Index(tmp_path / "index")
    assert index.scan(base).read == 3
    _settled(index, base)
    assert index.scan(base).read == 0
    (base / "deep/er/b").write_text("B")
    assert index.scan(base).read == 1


def test_an_edit_that_restores_size_and_time_is_seen(tmp_path: Path, base: Path) -> None:
    index = Index(tmp_path / "index")
    _settled(index, base)
    before = index.scan(base).state
    stamps = os.stat(base / "a")
    (base / "a").write_text("x")
    os.utime(base / "a", ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert index.scan(base).state != before


@pytest.mark.parametrize("racy", [True, False])
def test_what_was_seen_within_a_tick_of_its_change_is_read_again(
    tmp_path: Path, base: Path, racy: bool
) -> None:
    """A file can change again without a new stamp. The index is made to hold the digest from
    before such a change; it may only be believed if it was taken late enough."""
    if racy:  # as seen by a scan within the tick
        ahead = time.time_ns() + 10**12
        os.utime(base / "a", ns=(ahead, ahead))
    index = Index(tmp_path / "index")
    _settled(index, base)
    _settled(index, base)
    right = index.scan(base).state
    index.close()
    database = sqlite3.connect(tmp_path / "index")
    with database:
        (lines,) = database.execute("SELECT lines FROM folders WHERE path = x''").fetchone()
        at = lines.index(b"1:af644:") + len(b"1:af644:")
        wrong = lines[:at] + bytes(32) + lines[at + 32 :]
        database.execute("UPDATE folders SET lines = ? WHERE path = x''", (wrong,))
    database.close()
    index = Index(tmp_path / "index")
    index.scan(base)
    believed = index.entry(b"a")
    assert believed is not None
    assert (believed.digest == bytes(32)) == (not racy)
    if racy:
        assert index.scan(base).state == right


def test_a_broken_index_is_made_anew(tmp_path: Path, base: Path) -> None:
    space = Space(tmp_path / "home", base)
    first = space.scan().state
    (space.folder / "index.db").write_bytes(b"no database at all" * 100)
    assert space.scan().state == first


def test_names_are_told_so_that_they_can_be_told_apart() -> None:
    assert shown("ü/a b".encode()) == "ü/a b"
    assert shown(b"100%.txt") == "100%.txt"
    assert shown(b"new\nline") == "%:new%0Aline"
    assert shown(b"\xff") == "%:%FF"
    assert shown(b"%:new%0Aline") == "%:%25%3Anew%250Aline"


def test_another_file_system_below_the_workspace_is_refused(tmp_path: Path) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("no /proc")
    with pytest.raises(Refused, match="mount point"):
        Index(tmp_path / "index").scan(Path("/"), frozenset(_others()))


def _others() -> set[bytes]:
    """All of / but what is mounted below it."""
    top = os.stat("/").st_dev
    return {
        os.fsencode(name)
        for name in os.listdir("/")
        if os.stat(f"/{name}", follow_symlinks=False).st_dev == top
    }


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_a_scan_serves_those_who_asked_before_it_began(tmp_path: Path, base: Path) -> None:
    index = Index(tmp_path / "index")
    assert index.scanned_since(0) is None
    asked = _now_ns()
    state = index.scan(base).state
    found = index.scanned_since(asked)
    assert found is not None
    assert found.state == state
    assert index.scanned_since(_now_ns()) is None


@pytest.mark.parametrize("accepted", [True, False])
def test_no_scan_serves_anybody_once_a_change_was_begun(
    tmp_path: Path, base: Path, accepted: bool
) -> None:
    """Whether or not the process that began it survived."""
    index = Index(tmp_path / "index")
    asked = _now_ns()
    index.scan(base)
    index.expect_change()
    if accepted:
        index.accept(index.preview(()))
    assert index.scanned_since(asked) is None
    index.scan(base)
    assert index.scanned_since(asked) is not None


def test_a_scan_of_another_boot_serves_nobody(tmp_path: Path, base: Path) -> None:
    index = Index(tmp_path / "index")
    state = index.scan(base).state
    assert index.believed(state.hash) is not None
    with sqlite3.connect(tmp_path / "index") as database:
        database.execute("UPDATE top SET boot = 'another'")
    database.close()
    assert index.scanned_since(0) is None
    assert index.believed(state.hash) is None


def test_folders_that_come_and_go_during_a_scan_do_not_end_it(tmp_path: Path, base: Path) -> None:
    stop = threading.Event()

    def restless() -> None:
        while not stop.is_set():
            (base / "come").mkdir()
            (base / "come" / "file").write_text("x")
            shutil.rmtree(base / "come")
            time.sleep(0.002)

    thread = threading.Thread(target=restless)
    index = Index(tmp_path / "index")
    still = index.scan(base).state
    thread.start()
    try:
        for _ in range(100):
            index.scan(base)
    finally:
        stop.set()
        thread.join()
    assert index.scan(base).state == still
