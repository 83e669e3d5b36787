"""Copying files, links and folders from one open folder to another."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from actum.workspace import files
from actum.workspace.tree import joined


def own(look: os.stat_result) -> tuple[int, int]:
    return look.st_uid, look.st_gid


def copy_tree(
    source: int,
    target: int,
    left_out: frozenset[bytes] = frozenset(),
    owner: Callable[[os.stat_result], tuple[int, int]] = own,
) -> int:
    """Files, links and folders of one open folder into another, with modes, times and owners.

    Returns how many bytes they hold, holes included.
    """
    folders = [b""]
    held = 0
    for path in folders:
        here, there = files.open_folder(path, source), files.open_folder(path, target)
        try:
            for name in map(os.fsencode, os.listdir(here)):
                if not path and name in left_out:
                    continue
                look = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISDIR(look.st_mode):
                    os.mkdir(name, 0o700, dir_fd=there)
                    folders.append(joined(path, name))
                else:
                    copy_name(name, look, here, name, there, owner(look))
                    held += look.st_size
        finally:
            os.close(here)
            os.close(there)
    # The deepest first: a copy inside changes the time of its folder.
    for path in reversed(folders):
        here, there = files.open_folder(path, source), files.open_folder(path, target)
        try:
            look = os.fstat(here)
            dress(there, look, owner(look))
        finally:
            os.close(here)
            os.close(there)
    return held


def copy_name(
    name: bytes,
    look: os.stat_result,
    here: int,
    new_name: bytes,
    there: int,
    owner: tuple[int, int] | None = None,
) -> None:
    """One file or link; of anything else nothing can be copied, and nothing is."""
    owner = owner or own(look)
    if stat.S_ISLNK(look.st_mode):
        os.symlink(os.readlink(name, dir_fd=here), new_name, dir_fd=there)
        if os.geteuid() == 0:
            os.chown(new_name, *owner, dir_fd=there, follow_symlinks=False)
        return
    if not stat.S_ISREG(look.st_mode):
        return
    source = os.open(name, files.FILE_FLAGS, dir_fd=here)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(new_name, flags, 0o600, dir_fd=there)
        try:
            files.copy_file(source, target)
            dress(target, look, owner)
        finally:
            os.close(target)
    finally:
        os.close(source)


def dress(target: int, look: os.stat_result, owner: tuple[int, int]) -> None:
    """Owner, permissions (never set-user-id or set-group-id) and time of change."""
    if os.geteuid() == 0:
        os.fchown(target, *owner)
    os.fchmod(target, look.st_mode & 0o777)
    os.utime(target, ns=(look.st_atime_ns, look.st_mtime_ns))
