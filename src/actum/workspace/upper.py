"""What an overlay's upper layer says was changed, compared with the folder below it.

The upper layer holds a name for every change: a whole file, a folder, a link, or a whiteout (a
character device 0:0) for what was removed. A folder that was removed and made anew is marked
opaque. Redirects are switched off, so a change never has to be looked for under another name.

Nothing of the host was written while the tool ran, so whatever changed there since was changed by
another program. It is found by its time of change, which only the kernel writes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from actum.runners.layers import is_opaque
from actum.value import value
from actum.workspace import files
from actum.workspace.placed import Placed
from actum.workspace.tree import Change, Delta, Entry, Kind, joined


@value
class Found:
    """What is in an upper layer."""

    delta: Delta
    overtaken: tuple[bytes, ...]  #: changed below since the start, by another program
    left_out: tuple[bytes, ...]  #: pipes, sockets and devices, which are never taken over


def changes(
    upper: int, base: int, since_ns: int, placed: Iterable[Placed] = (), *, over: bool = False
) -> Found:
    """Compare an open upper layer with the open folder `base`, when no process writes any more.

    What has a time of change after `since_ns` in `base` was changed by another program. So was a
    name of `placed` that differs in `base` from what was placed, unless a person wants the changes
    `over` it. As long as the tool left such a name as it was placed, it is no change.
    """
    walk = _Walk(upper, base, since_ns, {each.path: each for each in placed}, over=over)
    top, below = os.fstat(upper), os.fstat(base)
    if files.permissions(top) != files.permissions(below):
        before = files.entry_of(below, b"")
        walk.found.append(Change(b"", before, files.entry_of(top, b"")))
    walk.run()
    walk.settle_ways()
    return Found(
        delta=tuple(sorted(walk.found, key=lambda change: change.path)),
        # What both made the same is no conflict.
        overtaken=tuple(sorted(walk.overtaken & {change.path for change in walk.found})),
        left_out=tuple(sorted(walk.left_out)),
    )


class _Walk:
    """Never recursive: a tool can nest folders deeper than Python can call functions."""

    def __init__(
        self,
        upper: int,
        base: int,
        since_ns: int,
        placed: Mapping[bytes, Placed],
        *,
        over: bool,
    ) -> None:
        self.found: list[Change] = []
        self.overtaken: set[bytes] = set()
        self.left_out: set[bytes] = set()
        self._upper, self._base, self._since_ns = upper, base, since_ns
        self._placed, self._over = placed, over
        self._ways: list[Change] = []  #: placed folders that the tool left as they were
        self._waiting: list[tuple[bytes, bool]] = []
        self._folders = contextlib.ExitStack()  #: closed ones stay open until all is looked at

    def run(self) -> None:
        self._waiting.append((b"", True))
        with self._folders:
            while self._waiting:
                path, shows = self._waiting.pop()
                with _opened(path, self._upper) as upper:
                    if shows:
                        with _opened(path, self._base) as base:
                            self._folder(path, upper, base)
                    else:
                        self._folder(path, upper, None)

    def _folder(self, path: bytes, upper: int, base: int | None) -> None:
        """One folder of the upper layer; `base` is ``None`` where nothing shows through."""
        names = set(map(os.fsencode, os.listdir(upper)))
        if base is not None and is_opaque(upper):
            names.update(map(os.fsencode, os.listdir(base)))
        for name in names:
            where = joined(path, name)
            below = None if base is None else files.look(name, base)
            above, placed = files.look(name, upper), self._placed.get(where)
            if placed is not None and above is not None and placed.is_untouched(above):
                continue
            before = None
            if below is not None and base is not None:
                before = self._entry(where, name, base, below)
            if before is None or before.kind is Kind.FOLDER:
                self._compare_placed(where, before)
            self._name(where, name, upper, before, above)

    def _name(
        self,
        path: bytes,
        name: bytes,
        upper: int,
        before: Entry | None,
        above: os.stat_result | None,
    ) -> None:
        placed = self._placed.get(path)
        was_folder = before is not None and before.kind is Kind.FOLDER
        if above is None or _is_whiteout(above):
            if was_folder:
                self._gone(path)
            if before is not None:
                self.found.append(Change(path, before, None))
            return
        after = files.entry_of(above, b"")
        if after.kind is Kind.OTHER:
            self.left_out.add(path)
            return
        if after.kind is Kind.FOLDER:
            self._folders.enter_context(files.opened_up(name, upper, above))
            self._waiting.append((path, was_folder))
        else:
            with files.opened_up(name, upper, above):
                after = after._replace(digest=files.read_digest(name, upper, above))
        if placed is not None and after == placed.entry:
            if after.kind is Kind.FOLDER and not was_folder:
                self._ways.append(Change(path, before, after))
            return
        if was_folder and after.kind is not Kind.FOLDER:
            self._gone(path)
        if before != after:
            self.found.append(Change(path, before, after))

    def settle_ways(self) -> None:
        """A folder to a sealed input that the host has removed meanwhile is made again only if the
        tool left something in it."""
        changed = [change.path for change in self.found]
        self.found += [
            way for way in self._ways if any(path.startswith(way.path + b"/") for path in changed)
        ]

    def _gone(self, path: bytes) -> None:
        """Everything in a folder of the base that is there no more."""
        waiting = [path]
        while waiting:
            above = waiting.pop()
            with _opened(above, self._base) as folder:
                for name in map(os.fsencode, os.listdir(folder)):
                    where, look = joined(above, name), files.look(name, folder)
                    if look is None:
                        continue
                    before = self._entry(where, name, folder, look)
                    self.found.append(Change(where, before, None))
                    if before.kind is Kind.FOLDER:
                        waiting.append(where)

    def _entry(self, path: bytes, name: bytes, base: int, below: os.stat_result) -> Entry:
        if files.kind_of(below.st_mode) is Kind.FOLDER:
            return files.entry_of(below, b"")
        # A folder's own time changes with every name in it; what is in it is looked at by itself.
        if below.st_ctime_ns > self._since_ns:
            self.overtaken.add(path)
        found = files.entry_of(below, files.read_digest(name, base, below))
        self._compare_placed(path, found)
        return found

    def _compare_placed(self, path: bytes, before: Entry | None) -> None:
        """The host may have changed an input after it was sealed and before the start."""
        placed = self._placed.get(path)
        if placed is not None and before != placed.entry and not self._over:
            self.overtaken.add(path)


def _is_whiteout(look: os.stat_result) -> bool:
    return stat.S_ISCHR(look.st_mode) and look.st_rdev == 0


@contextlib.contextmanager
def _opened(path: bytes, anchor: int) -> Iterator[int]:
    folder = files.open_folder(path, anchor)
    try:
        yield folder
    finally:
        os.close(folder)
