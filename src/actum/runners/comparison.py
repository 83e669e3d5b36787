"""Names that decide what is executed later, compared before and after a tool that writes directly.

A cover protects a name as long as the host does not replace it, and a name that does not exist
cannot be covered. So these are compared once no process of the tool is left:

* the files that govern the project, and every other project in a writable folder;
* the files that git on the host would execute or obey, in every git directory below a writable
  folder;
* the set of git directories, with or without the name `.git`;
* the names that the project protects (`[protect] names`).

Files are compared by kind, mode and content. A change that was undone is not found.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from actum.contract.call import EffectivePolicy
from actum.contract.canonical import sha256_bytes
from actum.contract.governing_names import (
    GIT_COMMON,
    GIT_EXECUTES,
    GIT_HEAD,
    GIT_STORES,
    GOVERNING,
    is_git_directory,
)
from actum.contract.levels import is_within
from actum.kernel import open_exact
from actum.runners.folder_index import TICK_NS, FolderIndex, is_git_name
from actum.runners.init_request import writable_folders
from actum.value import value

#: Limit on compared names, and on the size of files whose content is compared.
MOST_NAMES = 20_000
MOST_BYTES = 4 << 20
_HOME = ".actum"
#: Without one of these a folder is no repository for git, which then searches its parents.
_GIT_NEEDS = (GIT_HEAD, *GIT_STORES)
#: Names that show what a folder is.
_TELLING = (*_GIT_NEEDS, GIT_COMMON, _HOME)
#: Folders of a git directory whose entries are git directories, or point to one.
_GIT_HOLDERS = ("modules", "worktrees")
#: Cached indexes of writable folders, the newest.
_MOST_INDEXES = 32
_STAMP = tuple[int, int, int, int, int, int]


@value(kw_only=False)
class Seen:
    """One name at the time of a snapshot."""

    text: str  #: kind, mode and digest
    linked: bool = False  #: a file with a second hard link, through which it can be written


@value
class Snapshot:
    """All governing names in the writable folders."""

    seen: Mapping[str, Seen]
    files: Mapping[str, tuple[_STAMP, Seen]]  #: cached: not read again if the stamp is the same
    complete: bool


@value
class Differences:
    changed: tuple[str, ...] = ()  #: the outermost paths
    linked: frozenset[str] = frozenset()  #: those with a second hard link
    complete: bool = True  #: everything was compared
    cut_short: bool = False  #: everything could be compared before the tool, but not after it


class Comparison:
    """Shared by threads."""

    def __init__(self, root: str, protected: Iterable[str]) -> None:
        self._root = root
        self._protected = tuple(protected)
        self._first = frozenset({_HOME, *(name.partition("/")[0] for name in self._protected)})
        self._guard = threading.Lock()
        self._indexes: dict[tuple[str, frozenset[str]], FolderIndex] = {}
        self._files: Mapping[str, tuple[_STAMP, Seen]] = {}  #: of the last snapshot

    def begin(self, policy: EffectivePolicy) -> Compared:
        """Before the tool runs; it may run as soon as this returns."""
        return Compared(self, policy)

    def look(self, policy: EffectivePolicy, since: Snapshot | None = None) -> Snapshot:
        """Take a snapshot. With `since`, a file is read again unless its stamp is the one in
        `since`: writes through a memory map can leave the stamp as it was, so the cache of another
        snapshot is not used."""
        with self._guard:
            known = self._files if since is None else since.files
            looking = _Looking(writable_folders(policy), frozenset(policy.deny), known)
            for top in looking.writable:
                self._look_around(top, looking)
                self._look_below(top, looking)
            looking.project(self._root)
            self._files = looking.files
        return Snapshot(seen=looking.seen, files=looking.files, complete=looking.complete)

    def _look_around(self, top: str, looking: _Looking) -> None:
        """Add the repositories and projects that contain a writable folder or file."""
        inside = os.path.relpath(top, self._root) if is_within(top, self._root) else top
        names = inside.casefold().strip("/").split("/")
        for protected in (_HOME, *self._protected):
            parts = protected.casefold().split("/")
            starts = range(len(names) - len(parts) + 1)
            if any(names[at : at + len(parts)] == parts for at in starts):
                looking.tree(top)
        folder = os.path.dirname(top)
        while folder != os.path.dirname(folder):
            names = [name for name in _TELLING if os.path.lexists(f"{folder}/{name}")]
            if is_git_name(os.path.basename(folder)) or is_git_directory(names.__contains__):
                looking.repository(folder)
            if _HOME in names:
                looking.project(folder)
            folder = os.path.dirname(folder)

    def _look_below(self, top: str, looking: _Looking) -> None:
        found = self._index(top, looking.closed).look()
        looking.complete = looking.complete and found.complete
        for path in found.repositories:
            looking.repository(path)
        for path in found.marked:
            holder, _, name = path.rpartition("/")
            if name.casefold() == _HOME:
                looking.kind(path)
                looking.project(holder)
            elif is_git_name(name):
                looking.one(path)
            for each in self._protected:
                if each.partition("/")[0].casefold() == name.casefold():
                    looking.tree(f"{holder}/{each}")

    def _index(self, top: str, closed: frozenset[str]) -> FolderIndex:
        index = self._indexes.pop((top, closed), None) or FolderIndex(top, self._first, closed)
        self._indexes[top, closed] = index
        while len(self._indexes) > _MOST_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        return index


class Compared:
    """One tool's run between two snapshots."""

    def __init__(self, comparison: Comparison, policy: EffectivePolicy) -> None:
        self._comparison = comparison
        self._policy = policy
        self._before = comparison.look(policy)

    def end(self) -> Differences:
        """Compare, once no process of the tool is left."""
        return differences(self._before, self._comparison.look(self._policy, self._before))


def differences(before: Snapshot, after: Snapshot) -> Differences:
    old, new = before.seen, after.seen
    changed = [path for path in {*old, *new} if old.get(path) != new.get(path)]
    outermost: list[str] = []
    for path in sorted(changed):
        if not (outermost and is_within(path, outermost[-1])):
            outermost.append(path)
    named = [path for path in outermost if path in new or _left_open(path, old[path])]
    return Differences(
        changed=tuple(named),
        linked=frozenset(
            top
            for top in named
            for path in changed
            if is_within(path, top) and any(s.linked for s in _both(path, old, new))
        ),
        complete=before.complete and after.complete,
        cut_short=before.complete and not after.complete,
    )


def _both(path: str, old: Mapping[str, Seen], new: Mapping[str, Seen]) -> Iterator[Seen]:
    for seen in (old.get(path), new.get(path)):
        if seen is not None:
            yield seen


def _left_open(path: str, was: Seen) -> bool:
    """Whether the absence of a name changes what is executed. It does not if a repository was
    removed together with its files."""
    if not os.path.lexists(os.path.dirname(path)):
        return False
    return was != _REPOSITORY or is_git_name(os.path.basename(path))


_REPOSITORY = Seen("repository")


class _Looking:
    """A snapshot that is being taken."""

    def __init__(
        self,
        writable: tuple[str, ...],
        closed: frozenset[str],
        known: Mapping[str, tuple[_STAMP, Seen]],
    ) -> None:
        self.writable = writable
        self.closed = closed
        self.seen: dict[str, Seen] = {}
        self.files: dict[str, tuple[_STAMP, Seen]] = {}
        self.complete = True
        self._known = known

    def project(self, root: str) -> None:
        for name in GOVERNING:
            path = f"{root.rstrip('/')}/{name}"
            if any(is_within(path, folder) for folder in self.writable):
                self.tree(path)

    def repository(self, path: str) -> None:
        self._note(path, _REPOSITORY)
        for name in _GIT_NEEDS:
            self.kind(f"{path}/{name}")
        for name in GIT_EXECUTES:
            self.tree(f"{path}/{name}")
        for name in _GIT_HOLDERS:
            for entry in self._entries(f"{path}/{name}"):
                self.kind(entry)

    def kind(self, path: str) -> None:
        look = _look(path)
        if look is not None:
            self._note(path, Seen(stat.filemode(look.st_mode)[0]))

    def one(self, path: str) -> None:
        """Add a name, unless it is a folder: then it was added as a repository."""
        look = _look(path)
        if look is not None and not stat.S_ISDIR(look.st_mode):
            self.tree(path)

    def tree(self, path: str) -> None:
        """Add a name with everything below it."""
        waiting = [path]
        while waiting:
            path = waiting.pop()
            look = _look(path)
            if look is None or path in self.closed:
                continue
            if not self._note(path, self._seen(path, look)):
                return
            if stat.S_ISDIR(look.st_mode):
                waiting += self._entries(path)

    def _note(self, path: str, seen: Seen) -> bool:
        if len(self.seen) == MOST_NAMES and path not in self.seen:
            self.complete = False
            return False
        self.seen.setdefault(path, seen)
        return True

    def _entries(self, folder: str) -> list[str]:
        try:
            descriptor = open_exact(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            self.complete = False
            return []
        try:
            return [f"{folder}/{name}" for name in os.listdir(descriptor)]
        finally:
            os.close(descriptor)

    def _seen(self, path: str, look: os.stat_result) -> Seen:
        if stat.S_ISLNK(look.st_mode):
            return Seen(f"link to {_target(path)}")
        mode = f"{stat.filemode(look.st_mode)[0]}{stat.S_IMODE(look.st_mode):o}"
        if not stat.S_ISREG(look.st_mode):
            return Seen(mode)
        stamp = _stamp(look)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = stamp, Seen(f"{mode} {self._content(path, look)}", look.st_nlink > 1)
        # A file that was changed a moment ago can be changed again within the same ctime.
        if look.st_ctime_ns < time.time_ns() - TICK_NS:
            self.files[path] = known
        return known[1]

    def _content(self, path: str, look: os.stat_result) -> str:
        if look.st_size > MOST_BYTES:
            return f"stamp {_stamp(look)}"
        try:
            descriptor = open_exact(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return f"stamp {_stamp(look)}"  # not readable for this user
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "replaced"
            return sha256_bytes(file.read(MOST_BYTES))


def _stamp(look: os.stat_result) -> _STAMP:
    return (
        look.st_dev,
        look.st_ino,
        look.st_mode,
        look.st_nlink,
        look.st_size,
        look.st_ctime_ns,
    )


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
