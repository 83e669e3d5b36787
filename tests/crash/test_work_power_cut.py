"""Work items on a file system of their own, which loses power or is full.

A loop device with ext4. "Power cut": the file system is shut down without writing its journal, so
whatever was not synced is lost; then it is mounted again. "Full": room is taken away until writes
fail, at every amount of room from none to enough. Where no loop device is to be had, nothing here
can run, and that is counted as a skip.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.workspace import namespace

from .matrix import spread
from .test_work_moments import Lab, drive

_IMAGE_BYTES = 96 << 20


def _can_loop() -> bool:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("losetup") is None:
        return False
    return subprocess.run(["losetup", "-f"], capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not _can_loop(), reason="no loop device for a file system of its own"),
]


class Disk:
    """A small ext4 that can be unplugged."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "disk"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(self.image)], check=True)
        self.plug()

    def plug(self) -> None:
        subprocess.run(
            ["mount", "-o", "loop,noauto_da_alloc", str(self.image), str(self.place)], check=True
        )

    def unplug(self) -> None:
        """Until the kernel has let go: a process that was just killed may still hold it."""
        until = time.monotonic() + 30
        while subprocess.run(["umount", str(self.place)], capture_output=True).returncode:
            assert time.monotonic() < until, "the disk stays in use"
            time.sleep(0.05)
        while subprocess.run(["losetup", "-j", str(self.image)], capture_output=True).stdout:
            assert time.monotonic() < until, "the loop device stays in use"
            time.sleep(0.05)

    def room_left(self, leave: int) -> None:
        """Take all room but `leave` bytes."""
        taken = 0
        with (self.place / "ballast").open("wb") as file:
            for step in (1 << 20, 1 << 16, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), taken, step)
                        taken += step
            file.truncate(max(0, taken - leave))
            os.fsync(file.fileno())

    def sync(self) -> None:
        """This file system alone: other processes of the host write, too."""
        subprocess.run(["sync", "-f", str(self.place)], check=True)

    def give_back(self) -> None:
        (self.place / "ballast").unlink(missing_ok=True)


def with_disk(folder: Path, work: Callable[[Disk], None]) -> None:
    """In a mount namespace of this test alone: nobody else's processes keep the disk in use."""

    def plugged() -> None:
        disk = Disk(folder)
        try:
            work(disk)
        finally:
            disk.unplug()

    apart(plugged)


def apart(work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            namespace.enter()
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again by who waits
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _after_power_cuts(
    disk: Disk, lab: Lab, how: str, wanted: int, *, until_wrong: bool = False
) -> tuple[int, list[str]]:
    """(cuts that happened, what was wrong after them)."""
    cuts, wrong = 0, []
    for kill_at in spread(lab.commit_moments, wanted, late=True):
        project = lab.copy(f"cut-{kill_at}")
        disk.sync()
        if drive(project, kill_at, "commit", how) is None:
            cuts += 1
        disk.unplug()
        disk.plug()
        wrong += lab.inconsistencies(project)
        shutil.rmtree(project)
        if until_wrong and wrong:
            break
    return cuts, wrong


@pytest.mark.req("002-35")
def test_a_power_cut_during_the_commit_leaves_before_or_after(tmp_path: Path) -> None:
    with_disk(tmp_path, _cut)


def _cut(disk: Disk) -> None:
    lab = Lab(disk.place)
    cuts, wrong = _after_power_cuts(disk, lab, "shutdown", 10)
    assert wrong == []
    assert cuts > 0


def test_control_without_syncs_a_power_cut_is_seen(tmp_path: Path) -> None:
    with_disk(tmp_path, _cut_unsynced)


def _cut_unsynced(disk: Disk) -> None:
    lab = Lab(disk.place)
    cuts, wrong = _after_power_cuts(disk, lab, "shutdown-sync", 24, until_wrong=True)
    assert cuts > 0
    assert wrong != []


@pytest.mark.req("002-35", "002-47", "002-48")
def test_a_full_disk_leaves_before_or_after(tmp_path: Path) -> None:
    with_disk(tmp_path, _full)


def _full(disk: Disk) -> None:
    lab = Lab(disk.place)
    ends = set()
    for leave in (0, 4_096, 32_768, 131_072, 262_144, 1 << 20, 8 << 20):
        project = lab.copy(f"full-{leave}")
        disk.room_left(leave)
        disk.sync()
        answer = drive(project, 0, "all", allow_failure=True)
        disk.give_back()
        state, wrong = lab.look(project)
        assert wrong == [], leave
        ends.add(state)
        if answer is not None and answer["result"]["status"] == "success":
            assert state == lab.after
        shutil.rmtree(project)
    assert ends == {lab.before, lab.after}
