"""What a judgement saw of the file system, so that it can be seen whether all of it still holds.

Whoever judges asks the file system through `Looks`. Each answer is noted as far as a judgement can
depend on it, and `hold` asks every question again: it is true only if each answer is the same. Each
question is asked once, so that one judgement sees one file system.

Why an answer that is the same cannot hide a change: a link is known by device, inode and ctime and
by where it leads, a file by the first three, mode and size, and a ctime cannot be set back. What
changed in the very clock tick in which it was looked at could change again and keep its ctime; then
`lasting` is false. Not seen: a store through a shared mapping that was made before the look, which
the kernel need not date anew. It takes somebody who may write that very file.

Names that lie in one folder are not asked for one by one while the folder itself is the same
(`actum.folders`).
"""

from __future__ import annotations

import os
import stat

from actum.folders import Names
from actum.registry.digest import file_clock_ns
from actum.value import value

#: How many links the kernel follows for one path.
_MOST_LINKS = 40

#: Of a directory its content is left out: that something was written into it says nothing.
Known = tuple[int, ...]


class Looks:
    """Everything that was asked of the file system, with the answers."""

    __slots__ = (
        "_absent",
        "_again",
        "_files",
        "_links",
        "_may",
        "_plain",
        "_real",
        "_tick",
        "lasting",
    )

    def __init__(self) -> None:
        # The clock comes first: a later change is stamped no earlier than this.
        self._tick = file_clock_ns()
        self._real: dict[str, str] = {}
        self._plain: dict[str, int] = {}  #: steps of paths that are no links -> mode
        self._links: dict[str, tuple[Known, str]] = {}  #: and those that are -> where they lead
        self._absent: set[str] = set()
        self._files: dict[str, Known] = {}
        self._may: dict[tuple[str, int, bool], bool] = {}
        self._again: _Again | None = None
        self.lasting = True  #: whether `hold` can tell

    def real(self, path: str) -> str:
        """Where an absolute `path` leads, without links; it need not exist. As `os.path.realpath`
        does it, whose own looks nobody can note."""
        found = self._real.get(path)
        if found is None:
            found = self._real[path] = self._follow(path)
        return found

    def _follow(self, path: str) -> str:
        if not path.startswith("/"):
            self.lasting = False  # it depends on where we are
            return os.path.realpath(path)
        at, steps, links = "", path.split("/")[::-1], 0
        while steps:
            name = steps.pop()
            if name == "..":
                at = at.rpartition("/")[0]
            elif name not in ("", "."):
                step = f"{at}/{name}"
                target = self._target(step)
                if target is None:
                    at = step
                    if step in self._absent and ".." not in steps:
                        # Below what is not there is nothing to look at.
                        return "/".join(
                            [at, *(each for each in steps[::-1] if each not in ("", "."))]
                        )
                    continue
                links += 1
                if links > _MOST_LINKS:  # perhaps in a circle
                    self.lasting = False
                    return os.path.realpath(path)
                if target.startswith("/"):
                    at = ""
                steps += target.split("/")[::-1]
        return at or "/"

    def _target(self, path: str) -> str | None:
        if path in self._plain or path in self._absent:
            return None
        known = self._links.get(path)
        if known is None:
            self._again = None
            try:
                status = os.lstat(path)
            except OSError:
                self._absent.add(path)
                return None
            if not stat.S_ISLNK(status.st_mode):
                self._plain[path] = status.st_mode
                return None
            known = self._links[path] = (_link(status), os.readlink(path))
            self._settle(status)
        return known[1]

    def status(self, path: str) -> os.stat_result:
        """What is at a resolved `path`; raises `OSError` as `os.stat` does."""
        try:
            status = os.stat(path)
        except OSError:
            self.lasting = False  # nothing that was refused for it is kept
            raise
        self._again = None
        self._files[path] = _file(status)
        if not stat.S_ISDIR(status.st_mode):
            self._settle(status)
        return status

    def may(self, path: str, mode: int, *, effective_ids: bool = False) -> bool:
        """Whether we may use `path` so, as `os.access` says it."""
        found = os.access(path, mode, effective_ids=effective_ids)
        self._may[path, mode, effective_ids] = found
        return found

    def _settle(self, status: os.stat_result) -> None:
        if status.st_ctime_ns >= self._tick:
            self.lasting = False

    def hold(self) -> bool:
        """Whether every answer would be the same now."""
        again = self._again
        if again is None:
            again = self._again = self._to_ask()
        lstat = os.lstat
        try:
            for path, mode, folder, file, inside in again.plain:
                s = lstat(path)
                if mode is not None and s.st_mode != mode:
                    return False
                if folder is not None and (s.st_mode, s.st_dev, s.st_ino) != folder:
                    return False
                if file is not None and file != (
                    s.st_mode,
                    s.st_dev,
                    s.st_ino,
                    s.st_size,
                    s.st_ctime_ns,
                ):
                    return False
                if inside is not None and not inside.hold(s):
                    return False
            for path, link, target in again.links:
                s = lstat(path)
                if (s.st_mode, s.st_dev, s.st_ino, s.st_ctime_ns) != link:
                    return False
                # Those of /proc lead elsewhere and stay the same link: `/proc/self/cwd`.
                if os.readlink(path) != target:
                    return False
            for path, known in again.others:
                if _file(os.stat(path)) != known:
                    return False
        except OSError:
            return False
        for path in again.absent:
            if os.access(path, os.F_OK, follow_symlinks=False):
                return False
        for (path, mode, effective_ids), found in self._may.items():
            if os.access(path, mode, effective_ids=effective_ids) is not found:
                return False
        return True

    def _to_ask(self) -> _Again:
        """One look for each path that has to be looked at."""
        folders: dict[str, Names] = {}
        alone, absent = dict(self._plain), set(self._absent)
        for path in (*self._plain, *self._absent):
            folder = path.rpartition("/")[0] or "/"
            if folder == "/" or stat.S_ISDIR(self._plain.get(folder, 0)):
                folders.setdefault(folder, Names()).add(path, self._plain.get(path))
        worth = {folder: inside for folder, inside in folders.items() if inside.is_worth_it}
        for inside in worth.values():
            for path, _mode in inside.plain:
                del alone[path]
            absent.difference_update(inside.absent)
        files = {path: file for path, file in self._files.items() if path in self._plain}
        return _Again(
            plain=tuple(
                (path, alone.get(path), *_kinds(files.get(path)), worth.get(path))
                for path in {**alone, **files, **worth}
            ),
            links=tuple((path, link, target) for path, (link, target) in self._links.items()),
            others=tuple(each for each in self._files.items() if each[0] not in self._plain),
            absent=tuple(absent),
        )


@value
class _Again:
    """What is to be confirmed, laid out for a loop without calls."""

    #: path -> its mode, what it is if it is a folder, or if it is none, and what lies in it
    plain: tuple[tuple[str, int | None, Known | None, Known | None, Names | None], ...]
    links: tuple[tuple[str, Known, str], ...]
    others: tuple[
        tuple[str, Known], ...
    ]  #: files that were asked for by a path of which no step was
    absent: tuple[str, ...]


def _kinds(file: Known | None) -> tuple[Known | None, Known | None]:
    """(of a folder, of anything else), as `_file` tells them."""
    return (file, None) if file is not None and stat.S_ISDIR(file[0]) else (None, file)


def _link(status: os.stat_result) -> Known:
    return status.st_mode, status.st_dev, status.st_ino, status.st_ctime_ns


def _file(status: os.stat_result) -> Known:
    if stat.S_ISDIR(status.st_mode):
        return status.st_mode, status.st_dev, status.st_ino
    return status.st_mode, status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
