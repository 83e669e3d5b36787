"""Files that git on the host executes or obeys because its configuration names them.

`core.hooksPath`, `include.path`, filters and many other keys name files anywhere, also files that a
tool may write. The configuration is read as it is on the host before the changes: a change of the
configuration itself is held anyway. `policy.git_config` reads it, never git.

Checked are the repositories whose work tree or git directory contains a changed path, their
submodules and their other work trees; and the configuration of the user and of the system. A
repository elsewhere in a writable folder that names a path outside its own work tree is not
searched for.

Everything is bounded. If a bound is exceeded or a configuration cannot be parsed, the work tree is
closed: every change in it is held.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from actum.contract.governing_names import GIT_EXECUTES, is_git_directory
from actum.policy.git_config import (
    Named,
    NotGitConfig,
    Setting,
    includes,
    is_hooks_folder,
    named_by,
    parse,
)
from actum.policy.governing import Touched
from actum.value import value

_MOST_BYTES = 1 << 20
_MOST_FILES = 64  #: configuration files that one configuration includes
_DEEPEST_INCLUDE = 10  #: as in git
_MOST_REPOSITORIES = 256
_MOST_POINTER_BYTES = 65_536  #: of a file that holds a path
_DEEPEST_MODULE = 8  #: folders in the name of a submodule
_MOST_LINKS = 40  #: as in the kernel
_SYSTEM = b"/etc/gitconfig"
#: githooks(5)
_HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
    *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout"),
    *("post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive"),
    *("post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite"),
    *("sendemail-validate", "fsmonitor-watchman", "post-index-change", "p4-changelist"),
    *("p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
)


class _CannotJudge(Exception):
    """A bound was exceeded, or a file is no configuration."""


@value
class _Repository:
    git: bytes  #: its git directory
    common: bytes  #: with the configuration, hooks and objects; the same if it has no other
    tops: tuple[bytes, ...]  #: its work trees; a command of its configuration starts there


class NamedByGit:
    """Whether a git configuration names a changed path."""

    def __init__(self, touched: Iterable[Touched], user_home: str) -> None:
        self._home = os.fsencode(user_home)
        self._links: dict[bytes, bytes | None] = {}
        self._whole: set[bytes] = set()
        self._files: set[bytes] = set()
        self._ends: set[tuple[bytes, bytes]] = set()
        self._closed: set[bytes] = set()
        repositories = _around({os.path.dirname(each.path) for each in touched})
        tops = tuple({top for each in repositories for top in each.tops})
        for repository in repositories:
            self._add_repository(repository)
        self._add_users(tops)
        if len(repositories) == _MOST_REPOSITORIES:
            self._closed.update(tops)
        named = self._whole | self._files
        self._above = {above for path in named for above in _with_parents(path)}
        self._folders = tuple(path + b"/" for path in self._whole | self._closed)

    def __call__(self, touched: Touched) -> bool:
        path = touched.path
        return (
            path in self._files
            or path in self._whole
            # A link in the place of a folder brings other files under the names below it.
            or (touched.link and path in self._above)
            or path.startswith(self._folders)
            or any(
                path.startswith(top + b"/") and end + b"/" in path[len(top) :] + b"/"
                for top, end in self._ends
            )
        )

    # -- repositories

    def _add_repository(self, repository: _Repository) -> None:
        tops = repository.tops or (repository.git,)
        for folder in {repository.git, repository.common}:
            for name in (*(GIT_EXECUTES - {"info"}), "info/attributes"):
                self._add(_joined(folder, name.encode()), tops)
            self._add_hooks(_joined(folder, b"hooks"))
        files = (
            _joined(repository.common, b"config"),
            _joined(repository.git, b"config.worktree"),
        )
        self._add_configuration(files, (*tops, repository.git), tops)

    def _add_users(self, tops: tuple[bytes, ...]) -> None:
        """The user's and the system's configuration: a tool must not write a file that it names."""
        settings = os.fsencode(os.environ.get("XDG_CONFIG_HOME") or self._home + b"/.config")
        files = (self._home + b"/.gitconfig", settings + b"/git/config", _SYSTEM)
        self._add_configuration(files, tops, tops)

    def _add_configuration(
        self, files: Iterable[bytes], bases: tuple[bytes, ...], tops: tuple[bytes, ...]
    ) -> None:
        """`bases`: the folders that a relative name in a value may be relative to."""
        try:
            for file in files:
                self._add(file, tops)
                for setting, where in self._settings(file):
                    if includes(setting):
                        self._add(self._path(setting.value, os.path.dirname(where)), tops)
                        continue
                    self._add_named(named_by(setting), bases, tops)
                    if is_hooks_folder(setting):
                        for base in bases:
                            self._add_hooks(self._path(setting.value, base))
        except (_CannotJudge, NotGitConfig):
            self._closed.update(tops)

    def _settings(self, file: bytes) -> Iterator[tuple[Setting, bytes]]:
        """The entries of a file and of its includes, each with its file."""
        waiting, read = [(file, 0)], 0
        while waiting:
            path, depth = waiting.pop()
            content = _content(path)
            if content is None:
                continue  # git reads nothing there either
            read += 1
            if read > _MOST_FILES or depth > _DEEPEST_INCLUDE:
                raise _CannotJudge
            for setting in parse(content.decode("utf-8", "surrogateescape")):
                yield setting, path
                if includes(setting):
                    below = self._path(setting.value, os.path.dirname(path))
                    waiting.append((below, depth + 1))

    def _add_hooks(self, folder: bytes) -> None:
        """Each by its name, because the folder may be a whole work tree. A hook is often a link to
        a script of the project."""
        for hook in _HOOKS:
            self._files.add(os.path.normpath(_joined(folder, hook.encode())))
        try:
            names = os.listdir(folder)
        except OSError:
            return  # no such folder, or not readable
        for name in names:
            if self._link(_joined(folder, name)) is not None:
                self._files.update(self._ways(_joined(folder, name)))

    # -- names

    def _add_named(self, named: Named, bases: tuple[bytes, ...], tops: tuple[bytes, ...]) -> None:
        for base in bases:
            starts = [base, *(self._path(folder, base) for folder in named.folders)]
            for start in starts:
                for text in named.whole:
                    self._add(self._path(text, start), tops)
                for text in named.files:
                    self._files.update(self._ways(self._path(text, start)))
            self._ends.update((base, os.fsencode(end)) for end in named.ends)

    def _add(self, path: bytes, tops: tuple[bytes, ...]) -> None:
        """Add a path and everything below it, but never a whole work tree (`.` in a command)."""
        for way in self._ways(path):
            is_around = any(_is_below(top, way) for top in tops)
            (self._files if is_around else self._whole).add(way)

    def _path(self, text: str, base: bytes) -> bytes:
        path = os.fsencode(text)
        if path == b"~" or path.startswith(b"~/"):
            path = self._home + path[1:]
        elif path.startswith(b"~"):
            path = os.path.expanduser(path)
        return _joined(base, path)

    def _ways(self, path: bytes) -> Iterator[bytes]:
        """A path, each link on the way to what it names, and what it names."""
        yield os.path.normpath(path)
        waiting = [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]
        here, links = b"", 0
        while waiting:
            part = waiting.pop()
            if part == b"..":
                here = here.rpartition(b"/")[0]
                continue
            target = self._link(here + b"/" + part)
            if target is None or links == _MOST_LINKS:
                here += b"/" + part
                continue
            links += 1
            yield here + b"/" + part
            here = b"" if target.startswith(b"/") else here
            waiting += [each for each in reversed(target.split(b"/")) if each not in (b"", b".")]
        yield here or b"/"

    def _link(self, path: bytes) -> bytes | None:
        """The target of a link; ``None`` for anything else."""
        if path not in self._links:
            try:
                self._links[path] = os.readlink(path)
            except OSError:
                self._links[path] = None
        return self._links[path]


# -- finding repositories -------------------------------------------------------------------------


def _around(folders: Iterable[bytes]) -> tuple[_Repository, ...]:
    """The repositories whose work tree or git directory is or contains one of these folders, with
    their submodules and their other work trees."""
    found: dict[bytes, _Repository] = {}
    seen: set[bytes] = set()
    for folder in folders:
        here = folder or b"/"
        while here not in seen:
            seen.add(here)
            for repository in _at(here):
                _add_with_others(repository, found)
            here = os.path.dirname(here)
    return tuple(found.values())


def _at(folder: bytes) -> Iterator[_Repository]:
    inner = _joined(folder, b".git")
    try:
        mode = os.stat(inner).st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        yield _repository(inner, (folder,))
    elif stat.S_ISREG(mode):
        content = _pointer(inner)
        if content.startswith(b"gitdir:"):
            git = os.path.normpath(_joined(folder, content.removeprefix(b"gitdir:").strip()))
            yield _repository(git, (folder,))
    if _is_repository(folder):
        top = os.path.dirname(folder) if folder.endswith(b"/.git") else folder
        yield _repository(folder, (top,))


def _is_repository(folder: bytes) -> bool:
    return is_git_directory(lambda name: os.path.lexists(_joined(folder, name.encode())))


def _repository(git: bytes, tops: tuple[bytes, ...]) -> _Repository:
    common = _pointer(_joined(git, b"commondir"))
    own = os.path.normpath(_joined(git, common)) if common else git
    return _Repository(git=git, common=own, tops=(*tops, *_other_tops(git, own)))


def _other_tops(git: bytes, common: bytes) -> Iterator[bytes]:
    """The work trees that a git directory itself names, for a submodule or a linked work tree."""
    if linked := _pointer(_joined(git, b"gitdir")):
        yield os.path.dirname(os.path.normpath(_joined(git, linked)))
    for name in (_joined(common, b"config"), _joined(git, b"config.worktree")):
        try:
            settings = parse((_content(name) or b"").decode("utf-8", "surrogateescape"))
        except (NotGitConfig, _CannotJudge):
            continue  # reported when its settings are read
        for setting in settings:
            if (setting.section, setting.key) == ("core", "worktree"):
                yield os.path.normpath(_joined(git, os.fsencode(setting.value)))


def _add_with_others(repository: _Repository, found: dict[bytes, _Repository]) -> None:
    waiting = [repository]
    while waiting and len(found) < _MOST_REPOSITORIES:
        each = waiting.pop()
        known = found.get(each.git)
        if known is not None and set(each.tops) <= set(known.tops):
            continue
        tops = each.tops if known is None else (*known.tops, *each.tops)
        found[each.git] = _Repository(git=each.git, common=each.common, tops=tops)
        if known is None:
            waiting += [_repository(git, ()) for git in _nested(each.common)]


def _nested(common: bytes) -> Iterator[bytes]:
    """Git directories of submodules and of other work trees."""
    waiting = [(_joined(common, b"worktrees"), 1), (_joined(common, b"modules"), _DEEPEST_MODULE)]
    while waiting:
        folder, deepest = waiting.pop()
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            inner = _joined(folder, name)
            if _is_repository(inner):
                yield inner
            elif deepest > 1:
                waiting.append((inner, deepest - 1))


def _pointer(path: bytes) -> bytes:
    """The path in a pointer file (`gitdir`, `commondir`); empty if there is none."""
    try:
        return (_content(path, _MOST_POINTER_BYTES) or b"").strip()
    except _CannotJudge:
        return b""  # no path is so long


def _content(path: bytes, most: int = _MOST_BYTES) -> bytes | None:
    """The content of a git file, through links as git reads it; ``None`` if git would read none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(most + 1)
    if len(content) > most:
        raise _CannotJudge
    return content


def _joined(folder: bytes, name: bytes) -> bytes:
    return os.path.join(folder, name)


def _is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _with_parents(path: bytes) -> Iterator[bytes]:
    """A path and every parent except `/`."""
    while path.strip(b"/"):
        yield path
        path = path.rpartition(b"/")[0]
