"""Folders that a waiting container shows in the place of writable ones: empty until its request.

A bind mount is of a folder, not of its name. So the names of a request's copy are moved into the
folder that is mounted, and that folder then takes the place of the copy. The mount points of covers
are made with the container and stay: the kernel would detach a cover whose name is replaced.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from actum import removal
from actum.runners.layers import COPY, claim
from actum.value import value

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Of one writable folder: names directly in it that are covered, and whether each is a folder.
Covered = Mapping[str, bool]


@value
class CopiesAhead:
    """The copies of one waiting container, for which there is no transaction yet."""

    folder: Path
    folders: Mapping[str, str]  #: writable folder -> folder with its layers
    covered: Mapping[str, Covered]

    @classmethod
    def beside(cls, layers: Mapping[str, str], covered: Mapping[str, Covered]) -> CopiesAhead:
        """For the same writable folders as `layers`, in the same home."""
        transactions = Path(next(iter(layers.values()))).parent.parent
        folder = transactions / f"waiting-{secrets.token_hex(8)}"
        folders = {grant: str(folder / str(number)) for number, grant in enumerate(layers)}
        claim(folder)
        try:
            for grant, each in folders.items():
                os.makedirs(f"{each}/{COPY}", 0o700)
                for name, is_folder in covered[grant].items():
                    _make_mount_point(f"{each}/{COPY}/{name}", is_folder=is_folder)
        except BaseException:
            removal.remove(folder)
            raise
        return cls(folder=folder, folders=folders, covered=covered)

    def serves(self, layers: Mapping[str, str]) -> bool:
        """Whether nothing was written here, and the copies of a request have the same covers."""
        return self.folders.keys() == layers.keys() and all(
            _kinds(f"{folder}/{COPY}") == self.covered[grant]
            and _has(f"{layers[grant]}/{COPY}", self.covered[grant])
            for grant, folder in self.folders.items()
        )

    def move_to(self, layers: Mapping[str, str]) -> None:
        """Take the place of the copies of a request. The rest of this folder is to be removed."""
        for grant, folder in self.folders.items():
            _move(f"{layers[grant]}/{COPY}", f"{folder}/{COPY}", self.covered[grant])

    def discard(self) -> None:
        """Remove the folder. If that fails, the next recovery removes it."""
        with contextlib.suppress(removal.RemovalRefused, OSError):
            removal.remove(self.folder)


def _make_mount_point(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path, 0o700)
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _kinds(folder: str) -> dict[str, bool]:
    with os.scandir(folder) as entries:
        return {each.name: each.is_dir(follow_symlinks=False) for each in entries}


def _has(folder: str, covered: Covered) -> bool:
    for name, is_folder in covered.items():
        try:
            found = os.lstat(f"{folder}/{name}")
        except OSError:
            return False
        if stat.S_ISDIR(found.st_mode) != is_folder:
            return False
    return True


def _move(copy: str, waiting: str, covered: Covered) -> None:
    source, target = os.open(copy, _FOLDER), os.open(waiting, _FOLDER)
    try:
        for name in os.listdir(source):
            if name not in covered:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            elif covered[name]:
                os.rmdir(name, dir_fd=source)
            else:
                os.unlink(name, dir_fd=source)
        look = os.fstat(source)
        # Last: names that are made change the time of their folder.
        _dress(target, look, source)
    finally:
        os.close(source)
        os.close(target)
    os.rename(waiting, copy)  # over an empty folder


def _dress(target: int, look: os.stat_result, source: int) -> None:
    """The same owner, mode, attributes and times; the copy was made in the same file system."""
    os.fchown(target, look.st_uid, look.st_gid)
    os.fchmod(target, look.st_mode & 0o777)
    with contextlib.suppress(OSError):  # a file system without attributes
        for name in os.listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(look.st_atime_ns, look.st_mtime_ns))
