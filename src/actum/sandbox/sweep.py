"""Removes what crashed processes left behind, found by name.

Control groups and throwaway homes have the identity of their owning process in their *name*, so
that they never exist without an owner. Processes need no record: they die with their spawner.
Mounts need none: they end with their namespace. Output without a named session is never written to
disk.

Age does not matter, and nothing is removed whose owner may be alive.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from actum import removal
from actum.errors import Refused
from actum.evidence.owner import current_owner, is_alive, owner_of
from actum.sandbox import cgroup_v1, cgroup_v2
from actum.sandbox.cgroup import CgroupsUnavailable, Layout, sweep_folder

_MARK = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)-([0-9]+)-[0-9a-f]{16}")


def marked_name(pid: int | None = None) -> str:
    """A fresh name with its owner: boot, pid namespace, pid and start time of a process."""
    owner = current_owner() if pid is None else owner_of(pid)
    boot, namespace, number, start = owner.split(" ")
    return f"{boot[:8]}-{_number(namespace)}-{number}-{start}-{os.urandom(8).hex()}"


def make_home(pid: int | None = None) -> Path:
    """A throwaway folder of this process, or of `pid`: `remove_home` removes it, or the next sweep
    after its owner is gone.

    It holds the marker of `removal`. A project made for tools goes into a folder inside of it, so
    that no tool reaches the marker.
    """
    folder = _homes()
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(folder):
            if not os.path.lexists(folder):
                continue  # as below
            raise Refused(
                "TEMPORARY_NOT_OURS",
                f"{folder} is not a folder of this user.",
                remedy="Set TMPDIR to a directory of your own.",
            )
        home = folder / marked_name(pid)
        try:
            removal.make(home)
        except FileNotFoundError:
            continue  # another process has just removed the empty folder
        return home


def remove_home(home: Path) -> None:
    removal.remove(home)
    _remove_if_empty(home.parent)


def sweep_homes() -> None:
    """Remove throwaway homes of this user's processes that are gone.

    Only of this boot: a temporary directory may be shared with other machines.
    """
    folder = _homes()
    if not _is_ours(folder):
        return
    for name in os.listdir(folder):
        mark = _MARK.fullmatch(name)
        if mark and mark[1] == _boot()[:8] and not _lives(mark):
            # Without a marker, or with a mount in it, it stays.
            with contextlib.suppress(removal.RemovalRefused, OSError):
                removal.remove(folder / name)
    _remove_if_empty(folder)


def is_home(folder: Path) -> bool:
    """Whether a folder is a throwaway home of this user."""
    if _MARK.fullmatch(folder.name) is None or folder.parent.resolve() != _homes().resolve():
        return False
    return removal.is_removable(folder)


def sweep_groups() -> None:
    """Remove the control groups of processes that are gone, and kill the processes in them."""
    for parent in _group_parents():
        sweep_folder(parent)


def sweep_host() -> None:
    """Both, for a command that opens no runtime: no record is read or written, and a folder that
    cannot be removed is left to the next sweep."""
    for remove in (sweep_homes, sweep_groups):
        with contextlib.suppress(OSError):
            remove()


def _group_parents() -> list[str]:
    """The folders of this user's groups; none if groups cannot be made."""
    try:
        layout = Layout.of_host()
        if layout.version() == 2:
            return [cgroup_v2.place(layout)]
        parents = cgroup_v1.Hierarchies.of(layout).parents(os.geteuid())
    except CgroupsUnavailable:
        return []  # no groups, so none left behind
    return [*dict.fromkeys(parents.values())]


def _homes() -> Path:
    return Path(_temporary(), f"actum-{os.geteuid()}")


def _temporary() -> str:
    """The choice of the standard `tempfile`, without writing a test file."""
    named = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for folder in (*named, "/tmp", "/var/tmp", "/usr/tmp"):
        if folder and os.access(folder, os.W_OK | os.X_OK) and os.path.isdir(folder):
            return os.path.abspath(folder)
    return os.getcwd()


def _is_ours(folder: Path) -> bool:
    # In a world-writable directory another user can make this name first.
    try:
        found = folder.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return found.st_uid == os.geteuid() and (found.st_mode & 0o170022) == 0o040000


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # in use, or gone already


def _boot() -> str:
    return current_owner().split(" ")[0]


def _number(namespace: str) -> str:
    return namespace.removeprefix("pid:[").removesuffix("]")


def _lives(mark: re.Match[str]) -> bool:
    return is_alive(f"{_boot()} pid:[{mark[2]}] {mark[3]} {mark[4]}")
