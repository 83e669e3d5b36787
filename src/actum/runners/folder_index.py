"""The folders below a writable folder, cached from one search to the next.

The search finds entries that decide what is executed in a folder: a git directory, also a bare one
without the name `.git`, another project's `.actum`, and names that the project protects.

A folder whose ctime is the same holds the same names: the kernel sets ctime, and a tool cannot. So
the first search reads every folder, and each later one reads the folders that have changed.
"""

from __future__ import annotations

import os
import time

from actum.contract.governing_names import is_git_directory
from actum.kernel import open_exact
from actum.value import value

#: Limit on folders that are read below one writable folder.
MOST_FOLDERS = 100_000
#: A change within one tick of the kernel's coarse clock leaves the ctime as it was.
TICK_NS = 20_000_000
#: In a git directory: many folders from which git executes nothing.
_STORAGE = frozenset({"objects", "lfs"})


@value(kw_only=False)
class _Folder:
    stamp: tuple[int, int, int]  #: device, inode, ctime
    settled: bool  #: the ctime was old when the folder was read
    below: tuple[str, ...]  #: paths of its folders
    marked: tuple[str, ...]  #: paths of its entries that the search finds
    is_repository: bool


@value
class Found:
    repositories: tuple[str, ...]  #: git directories
    marked: tuple[str, ...]
    complete: bool  #: every folder was read


class FolderIndex:
    """One writable folder. Not shared by threads."""

    def __init__(self, top: str, names: frozenset[str], closed: frozenset[str]) -> None:
        """`names` are searched in every folder; `closed` are paths that no tool sees. A file
        system may be case-insensitive, so names are compared in lower case."""
        self._top = top
        self._names = frozenset({".git", *(name.casefold() for name in names)})
        self._closed = closed
        self._known: dict[str, _Folder] = {}

    def look(self) -> Found:
        known: dict[str, _Folder] = {}
        repositories: list[str] = []
        marked: list[str] = []
        complete = True
        waiting = [self._top]
        while waiting:
            path = waiting.pop()
            if path in self._closed:
                continue
            if len(known) == MOST_FOLDERS:
                complete = False
                break
            try:
                folder = self._folder(path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a file, or removed since its name was read
            except OSError:
                complete = False  # not readable, or replaced by a link since
                continue
            known[path] = folder
            waiting += folder.below
            if folder.is_repository:
                repositories.append(path)
            marked += folder.marked
        self._known = known
        return Found(repositories=tuple(repositories), marked=tuple(marked), complete=complete)

    def _folder(self, path: str) -> _Folder:
        folder = self._known.get(path)
        if folder is not None and folder.settled:
            look = os.lstat(path)
            if (look.st_dev, look.st_ino, look.st_ctime_ns) == folder.stamp:
                return folder
        return self._read(path)

    def _read(self, path: str) -> _Folder:
        descriptor = open_exact(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            look = os.fstat(descriptor)
            now = time.time_ns()
            marked: list[str] = []
            folded: set[str] = set()
            folders: list[str] = []
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name.casefold()
                    folded.add(name)
                    if name in self._names:
                        marked.append(f"{path}/{entry.name}")
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
        finally:
            os.close(descriptor)
        is_repository = is_git_name(os.path.basename(path)) or is_git_directory(
            lambda name: name.casefold() in folded
        )
        return _Folder(
            (look.st_dev, look.st_ino, look.st_ctime_ns),
            look.st_ctime_ns < now - TICK_NS,
            tuple(f"{path}/{name}" for name in folders if not (is_repository and name in _STORAGE)),
            tuple(marked),
            is_repository,
        )


def is_git_name(name: str) -> bool:
    return name.casefold() == ".git"
