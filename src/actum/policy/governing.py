"""Names that decide what Actum or git will execute later. The only list of them.

A tool may change them, like any file of its workspace, and a person decides about the change: a
transaction that touches one is held until then. Where a tool writes directly, they are covered.

* Names that govern a project: its settings, tools, lock, rules, agents, executors and home. Also
  those of another project inside a writable folder.
* Names that the host's git would execute or read as configuration: hooks, configuration, other
  directories that git is pointed to, and files of an operation that it would continue. Also in a
  git directory with another name than `.git`, such as a bare repository.
* A new repository: git finds it and obeys it.
* Names that editors, shells and other agents execute on opening a folder (`[protect] names`).

Paths are bytes: git accepts names that cannot be printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from actum.contract.governing_names import (
    GIT_COMMON,
    GIT_EXECUTES,
    GIT_HEAD,
    GIT_STORES,
    GOVERNING,
    is_git_directory,
)
from actum.value import value

#: Without one of these, a `.git` is not one, and git searches the parent folder for a repository.
_GIT_NEEDS = frozenset({GIT_HEAD.casefold(), *GIT_STORES})
#: A folder can become a git directory by one of these.
_MAKING = frozenset({GIT_COMMON, *_GIT_NEEDS})
_GIT, _HOME = ".git", ".actum"
#: In a git directory: the git directories of submodules and of other worktrees.
_NESTED = ("modules", "worktrees")

#: Whether a path exists on the host now, without the changes; ``None`` if it is too long to tell.
Exists = Callable[[bytes], bool | None]


@value(kw_only=False)
class Touched:
    """A path that a tool changed."""

    path: bytes  #: absolute
    removed: bool = False
    link: bool = False  #: a symbolic link now


def held_back(
    changed: Iterable[Touched],
    root: str,
    names: Iterable[str],
    exists: Exists,
    named: Callable[[Touched], bool] = lambda _touched: False,
) -> Iterator[bytes]:
    """The changed paths that a person has to decide about.

    `root` is the project's folder. Folders above it are ignored: a project may be anywhere.
    `named` says which paths are named elsewhere, as in git's configuration.
    """
    touched = tuple(changed)
    judge = _Judge(touched, root, names, exists)
    for each in touched:
        if judge.holds(each) or named(each):
            yield each.path


@value(kw_only=False)
class _Within:
    """What is known about the contents of a folder."""

    governed: bool  #: the folder, or a parent, is held with all contents
    names: tuple[str, ...]  #: the last names of its path, case-folded
    git: tuple[str, ...] | None  #: the path from the nearest `.git`, its first two names; or none
    repositories: tuple[bytes, ...]  #: git directories by their contents: it and its parents


class _Judge:
    """Visits each folder once: a tool can make thousands of names, thousands of levels deep.
    Nothing recurses, for the same reason."""

    def __init__(
        self, touched: tuple[Touched, ...], root: str, names: Iterable[str], exists: Exists
    ) -> None:
        self._root = os.fsencode(root).rstrip(b"/")
        self._exists = exists
        # Every project has `actum.toml`; a case-insensitive file system also finds this name.
        self._ignores_case = exists(self._root + b"/ACTUM.TOML") is True
        self._after = {self._same(each.path): not each.removed for each in touched}
        self._protected = tuple(tuple(name.casefold().split("/")) for name in names)
        # Names that a match needs before the last one.
        self._remembered = max((len(name) for name in self._protected), default=1) - 1
        self._known = {
            b"": _Within(False, (), None, ()),
            self._root: _Within(
                False,
                self._last(tuple(map(_folded, self._root.split(b"/")[1:]))),
                None,
                tuple(filter(self._is_repository, _with_parents(self._root))),
            ),
        }

    def holds(self, touched: Touched) -> bool:
        if touched.path == self._root:
            return False  # only its mode; a tool cannot rename it
        folder, _, name = touched.path.rpartition(b"/")
        within = self._within(folder)
        if self._lists_refs(touched, folder):
            return False
        return (
            within.governed
            or self._governs(folder, name)
            or self._is_protected(within, _folded(name), link=touched.link)
            or _is_gits(within, _folded(name), removed=touched.removed)
            or any(self._is_repositorys(touched, each) for each in within.repositories)
        )

    def _lists_refs(self, touched: Touched, folder: bytes) -> bool:
        """Whether it is a list of refs for plain HTTP clients, which `git gc` writes."""
        git = folder.rpartition(b"/")[0]
        if not touched.path.endswith(b"/info/refs") or touched.link:
            return False
        within = self._within(git)
        if within.governed or not (within.git == () or git in within.repositories):
            return False
        around = [each for each in within.repositories if each != git]
        return not any(self._is_repositorys(touched, each) for each in around)

    def _within(self, folder: bytes) -> _Within:
        unknown = []
        while (known := self._known.get(folder)) is None:
            unknown.append(folder)
            folder = folder.rpartition(b"/")[0]
        for below in reversed(unknown):
            known = self._known[below] = self._below(known, below)
        return known

    def _below(self, within: _Within, folder: bytes) -> _Within:
        above, _, name = folder.rpartition(b"/")
        folded = _folded(name)
        git: tuple[str, ...] | None = None
        if folded == _GIT:
            git = ()
        elif within.git is not None:
            git = (*within.git, folded)[:2]
        return _Within(
            governed=within.governed
            or self._governs(above, name)
            or self._is_protected(within, folded, link=False)
            or _is_executed(within.git, folded),
            names=self._last((*within.names, folded)),
            git=git,
            repositories=(*within.repositories, folder)
            if self._is_repository(folder)
            else within.repositories,
        )

    def _last(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names[-self._remembered :] if self._remembered else ()

    def _governs(self, folder: bytes, name: bytes) -> bool:
        if _folded(name) == _HOME:
            return True
        # On a case-sensitive file system `Tools` is another name than `tools`, and a common one.
        if os.fsdecode(self._same(name)) not in GOVERNING:
            return False
        return folder == self._root or self._there(folder, _HOME)

    def _is_protected(self, within: _Within, name: str, *, link: bool) -> bool:
        path = (*within.names, name)
        for protected in self._protected:
            if path[-len(protected) :] == protected:
                return True
            # A link in place of a folder brings the folder's contents under the protected name.
            parts = range(1, len(protected))
            if link and any(path[-count:] == protected[:count] for count in parts):
                return True
        return False

    def _is_repositorys(self, touched: Touched, repository: bytes) -> bool:
        """Whether git executes or obeys this path in a git directory with another name."""
        inside = touched.path[len(repository) + 1 :].split(b"/", 1)
        first = _folded(inside[0])
        if first in GIT_EXECUTES:
            return True
        made = len(inside) == 1 and not touched.removed and first in _MAKING
        return made and not self._was_repository(repository)

    def _same(self, path: bytes) -> bytes:
        """Equal for paths that name the same file in the project."""
        return os.fsencode(_folded(path)) if self._ignores_case else path

    def _is_repository(self, folder: bytes) -> bool:
        """Whether it is one with the changes applied."""
        return is_git_directory(lambda name: self._there(folder, name))

    def _was_repository(self, folder: bytes) -> bool:
        return is_git_directory(lambda name: self._exists(_joined(folder, name)) is True)

    def _there(self, folder: bytes, name: str) -> bool:
        path = _joined(folder, name)
        after = self._after.get(self._same(path))
        return after if after is not None else self._exists(path) is not False


def _is_gits(within: _Within, name: str, *, removed: bool) -> bool:
    """Whether a path is a `.git`, or one of the names in it that git executes or obeys."""
    if name == _GIT:
        return True  # made, removed, or a file that points elsewhere
    if within.git is None:
        return False
    if within.git == ():
        # A new module or worktree is a git directory of its own.
        return name in GIT_EXECUTES or name in _NESTED or (removed and name in _GIT_NEEDS)
    return (len(within.git) == 1 and within.git[0] in _NESTED) or _is_executed(within.git, name)


def _is_executed(git: tuple[str, ...] | None, name: str) -> bool:
    """Whether git executes everything below this name in a `.git`."""
    if git is None or name not in GIT_EXECUTES:
        return False
    # The git directory of a submodule or of another worktree is inside the first one.
    return git == () or (git[0] in _NESTED and len(git) > 1)


def _joined(folder: bytes, name: str) -> bytes:
    return folder + b"/" + name.encode()


def _with_parents(folder: bytes) -> Iterator[bytes]:
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]


def _folded(name: bytes) -> str:
    """As a case-insensitive file system compares it: without invisible characters, and with
    accents as separate characters."""
    text = os.fsdecode(name).casefold()
    if text.isascii():
        return text
    from unicodedata import category, normalize  # for few names

    parts = normalize("NFD", text)
    return "".join(part for part in parts if category(part) != "Cf" and part not in _SHOW_NOTHING)


#: Beside the format characters (Cf): characters that Unicode ignores in comparisons.
_SHOW_NOTHING = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x3164, 0xFFA0),
            *range(0x180B, 0x180E),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
