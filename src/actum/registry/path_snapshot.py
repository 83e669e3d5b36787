"""The file system facts behind a decision, recorded so that they can be checked again.

Code that decides reads the file system through `PathSnapshot`. The snapshot records each answer
as far as a decision can depend on it. `hold` asks every question again and is true only if each
answer is the same. Each question is asked once, so that one decision sees one file system.

Why an equal answer cannot hide a change: a link is identified by device, inode, ctime and target,
a file by the first three, mode and size, and a ctime cannot be set back. A file changed in the
same clock tick as its stat could change again with the same ctime; then `lasting` is false. Not
detected: a store through a shared mapping made before the snapshot, for which the kernel need not
update the times. It requires write access to that very file.
"""

from __future__ import annotations

import os
import stat

from actum.registry.digest import file_clock_ns

#: How many links the kernel follows for one path.
_MOST_LINKS = 40

#: A directory's size and times are left out: a write into it is not relevant.
Known = tuple[int, ...]


class PathSnapshot:
    """Every question that was asked of the file system, with its answer."""

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
        # Read the clock first: a later change is stamped no earlier than this.
        self._tick = file_clock_ns()
        self._real: dict[str, str] = {}
        self._plain: dict[str, int] = {}  #: path components that are no links -> mode
        self._links: dict[str, tuple[Known, str]] = {}  #: those that are links -> target
        self._absent: set[str] = set()
        self._files: dict[str, Known] = {}
        self._may: dict[tuple[str, int, bool], bool] = {}
        self.lasting = True  #: whether `hold` can detect every change

    def real(self, path: str) -> str:
        """Resolve an absolute `path` without links; it need not exist. As `os.path.realpath`, whose
        own reads could not be recorded."""
        found = self._real.get(path)
        if found is None:
            found = self._real[path] = self._follow(path)
        return found

    def links_on(self, path: str) -> tuple[str, ...]:
        """The links on the way of an absolute `path`, each by its own resolved path."""
        links: list[str] = []
        self._follow(path, links)
        return tuple(links)

    def real_in(self, root: str, path: str) -> str:
        """Resolve `path` as a process does whose root is the folder `root`; the result is a path
        there. `root` itself must be free of links. Empty: it leads through too many links."""
        at, steps, links = "", path.split("/")[::-1], 0
        while steps:
            name = steps.pop()
            if name == "..":
                at = at.rpartition("/")[0]
            elif name not in ("", "."):
                target = self._target(f"{root}{at}/{name}")
                if target is None:
                    at = f"{at}/{name}"
                    continue
                links += 1
                if links > _MOST_LINKS:
                    self.lasting = False
                    return ""
                if target.startswith("/"):
                    at = ""
                steps += target.split("/")[::-1]
        return at or "/"

    def _follow(self, path: str, links: list[str] | None = None) -> str:
        if not path.startswith("/"):
            self.lasting = False  # it depends on the working directory
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
                        # A missing folder has no contents to check.
                        return "/".join(
                            [at, *(each for each in steps[::-1] if each not in ("", "."))]
                        )
                    continue
                links.append(step)
                if len(links) > _MOST_LINKS:  # possibly a loop
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
        """The status of a resolved `path`; raises `OSError` as `os.stat` does."""
        try:
            status = os.stat(path)
        except OSError:
            self.lasting = False  # a refusal for this reason is not cached
            raise
        self._files[path] = _file(status)
        if not stat.S_ISDIR(status.st_mode):
            self._settle(status)
        return status

    def may(self, path: str, mode: int, *, effective_ids: bool = False) -> bool:
        """Whether this process may access `path` in this mode, as `os.access`."""
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
                # Links of /proc lead elsewhere and stay the same link: `/proc/self/cwd`.
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
