"""What a judgement saw of the file system, so that it can be seen whether all of it still holds.

Whoever judges asks the file system through `Looks`. Each answer is noted as far as a judgement can
depend on it, and `hold` asks every question again: it is true only if each answer is the same. Each
question is asked once, so that one judgement sees one file system.

Why an answer that is the same cannot hide a change: a link is known by device, inode and ctime and
by where it leads, a file by the first three, mode and size, and a ctime cannot be set back. What
changed in the very clock tick in which it was looked at could change again and keep its ctime; then
`lasting` is false. Not seen: a store through a shared mapping that was made before the look, which
the kernel need not date anew. It takes somebody who may write that very file.
"""

from __future__ import annotations

import os
import stat

from actum.registry.digest import file_clock_ns

#: How many links the kernel follows for one path.
_MOST_LINKS = 40

#: Of a directory its content is left out: that something was written into it says nothing.
Known = tuple[int, ...]


class Looks:
    """Everything that was asked of the file system, with the answers."""

    __slots__ = (
        "_absent",
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
        self.lasting = True  #: whether `hold` can tell

    def real(self, path: str) -> str:
        """Where an absolute `path` leads, without links; it need not exist. As `os.path.realpath`
        does it, whose own looks nobody can note."""
        found = self._real.get(path)
        if found is None:
            found = self._real[path] = self._follow(path)
        return found

    def links_on(self, path: str) -> tuple[str, ...]:
        """The links that an absolute `path` leads through, each by its own resolved path."""
        links: list[str] = []
        self._follow(path, links)
        return tuple(links)

    def _follow(self, path: str, links: list[str] | None = None) -> str:
        if not path.startswith("/"):
            self.lasting = False  # it depends on where we are
            return os.path.realpath(path)
        links = [] if links is None else links
        at, steps = "", path.split("/")[::-1]
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
                links.append(step)
                if len(links) > _MOST_LINKS:  # perhaps in a circle
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
        try:
            for path, mode in self._plain.items():
                if os.lstat(path).st_mode != mode:
                    return False
            for path, (link, target) in self._links.items():
                # Those of /proc lead elsewhere and stay the same link: `/proc/self/cwd`.
                if _link(os.lstat(path)) != link or os.readlink(path) != target:
                    return False
            for path, file in self._files.items():
                if _file(os.stat(path)) != file:
                    return False
        except OSError:
            return False
        for path in self._absent:
            if os.access(path, os.F_OK, follow_symlinks=False):
                return False
        for (path, mode, effective_ids), found in self._may.items():
            if os.access(path, mode, effective_ids=effective_ids) is not found:
                return False
        return True


def _link(status: os.stat_result) -> Known:
    return status.st_mode, status.st_dev, status.st_ino, status.st_ctime_ns


def _file(status: os.stat_result) -> Known:
    if stat.S_ISDIR(status.st_mode):
        return status.st_mode, status.st_dev, status.st_ino
    return status.st_mode, status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
