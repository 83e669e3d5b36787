"""The changes in an overlay's upper layer, compared with the folder below it.

The upper layer holds a name for every change: a whole file, a folder, a link, or a whiteout (a
character device 0:0) for a removed name. A folder that was removed and made again is opaque.
Redirects are switched off, so a change is always under its own name.

The tool writes nothing to the host's folder, so a change there was made by another program. It
shows in the ctime, which only the kernel sets. A removed entry has no ctime: the overlay marks what
it has copied up, and a copy without an original was removed by another program or renamed by the
tool.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from actum.runners.layers import is_copied_up, is_opaque
from actum.value import value
from actum.workspace import files
from actum.workspace.placed import Placed
from actum.workspace.tree import Change, Delta, Entry, Kind, joined


@value
class Found:
    """The result of a comparison."""

    delta: Delta
    overtaken: tuple[bytes, ...]  #: changed below since the start, by another program
    left_out: tuple[bytes, ...]  #: pipes, sockets and devices, which are never committed


def changes(
    upper: int, base: int, since_ns: int, placed: Iterable[Placed] = (), *, over: bool = False
) -> Found:
    """Compare an open upper layer with the open folder `base`, when no process writes any more.

    A name in `base` with a ctime after `since_ns` was changed by another program. So was a name of
    `placed` that differs in `base` from the placed entry, unless a person wants to overwrite it
    (`over`). A placed name that the tool did not change is no change.
    """
    walk = _Walk(upper, base, since_ns, {each.path: each for each in placed}, over=over)
    top, below = os.fstat(upper), os.fstat(base)
    if files.permissions(top) != files.permissions(below):
        before = files.entry_of(below, b"")
        walk.found.append(Change(b"", before, files.entry_of(top, b"")))
    walk.run()
    walk.settle_ways()
    if not over:
        walk.settle_orphans()
    return Found(
        delta=tuple(sorted(walk.found, key=lambda change: change.path)),
        # The same change on both sides is no conflict.
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
        self._ways: list[Change] = []  #: placed folders that the tool did not change
        self._orphans: list[tuple[bytes, bool]] = []  #: copied up; whether the folder was changed
        self._waiting: list[tuple[bytes, bool]] = []
        #: Folders without read permission, opened up until the end.
        self._folders = contextlib.ExitStack()

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
        """Compare one folder of the upper layer; `base` is ``None`` if no lower one is visible."""
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
            elif above is not None and self._is_copied_up(name, upper, above):
                self._orphans.append((where, base is not None and self._is_later(base)))
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
        """The parent of a sealed input that the host has removed meanwhile is made again only if
        the tool left something in it."""
        changed = [change.path for change in self.found]
        self.found += [
            way for way in self._ways if any(path.startswith(way.path + b"/") for path in changed)
        ]

    def settle_orphans(self) -> None:
        """Find names that another program has removed. A tool cannot rename a folder of the base,
        so another program removed it. The tool renamed a file if the folder below is unchanged, or
        if the tool has removed a file with the same content."""
        changes = {change.path: change for change in self.found}
        renamed = {
            change.before.digest
            for change in self.found
            if change.after is None and change.before is not None
        }
        for path, later in self._orphans:
            change = changes.get(path)
            if change is None or change.after is None:
                continue
            is_folder = change.after.kind is Kind.FOLDER
            if is_folder or (later and change.after.digest not in renamed):
                self.overtaken.add(path)

    def _is_copied_up(self, name: bytes, upper: int, above: os.stat_result) -> bool:
        with files.opened_up(name, upper, above):
            return is_copied_up(name, upper, above)

    def _is_later(self, folder: int) -> bool:
        return os.fstat(folder).st_ctime_ns > self._since_ns

    def _gone(self, path: bytes) -> None:
        """Add all entries of a removed folder of the base."""
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
        # A folder's own ctime changes with every name in it; its entries are compared separately.
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
