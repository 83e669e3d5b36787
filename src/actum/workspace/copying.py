"""The copy engine: for hosts whose kernel does not let this user mount an overlay.

The workspace is copied to a tmpfs of bounded size, shown in its place, and compared as a whole
afterwards. Time and memory grow with the workspace; the receipt names this engine. The tests
compare the overlay engine with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from actum.workspace import files, namespace
from actum.workspace.copies import Known, copy_tree, stamp_of
from actum.workspace.engine import (
    Census,
    Ground,
    Scale,
    private_tmpfs,
    shown_over,
)
from actum.workspace.index import Index, difference
from actum.workspace.tree import Change, Delta, Entry, Kind, joined


class CopyEngine:
    """Made and used inside of a namespace of its own (`namespace.enter`)."""

    name = "copy"

    def __init__(self, ground: Ground) -> None:
        """A step that fails undoes the steps before it."""
        self._ground = ground
        with contextlib.ExitStack() as undo:
            base = os.open(ground.base, files.FOLDER_FLAGS)
            undo.callback(os.close, base)
            self._top = os.fstat(base)
            self._anchor = private_tmpfs(ground, undo)
            os.mkdir("copy", dir_fd=self._anchor)
            self.shown = os.open("copy", files.FOLDER_FLAGS, dir_fd=self._anchor)
            undo.callback(os.close, self.shown)
            self._copied_bytes = copy_tree(base, self.shown, self._left_out, self.owner)
            self._undo = undo.pop_all()

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        return namespace.seen_owner((look.st_uid, look.st_gid), self._top)

    @property
    def _left_out(self) -> frozenset[bytes]:
        inner = self._ground.inner_home
        return frozenset() if inner is None else frozenset({os.fsencode(inner)})

    @contextlib.contextmanager
    def show(self) -> Iterator[None]:
        with self._shown("copy"):
            yield

    @contextlib.contextmanager
    def show_for_trial(self) -> Iterator[None]:
        with namespace.standing_in(f"/proc/self/fd/{self._anchor}"):
            os.mkdir("trial")
            trial = os.open("trial", files.FOLDER_FLAGS)
        try:
            copy_tree(self.shown, trial, self._left_out)
        finally:
            os.close(trial)
        with self._shown("trial"):
            yield

    def _shown(self, name: str) -> contextlib.AbstractContextManager[None]:
        def mount() -> None:
            for left_out in self._left_out:  # the mount point of the home
                with contextlib.suppress(FileExistsError):
                    os.makedirs(os.path.join(os.fsencode(name), left_out))
            namespace.attach(name, str(self._ground.place))

        return shown_over(self._ground, self._anchor, mount)

    def delta(self, index: Index) -> Delta:
        top, known = os.fstat(self.shown), index.entry(b"")
        # Copied holes are still holes; new content fits the tmpfs.
        scale = Scale(self._ground.cap_bytes + self._copied_bytes)
        found = listing(self.shown, self._ground.left_out, scale)
        changes = copied_changes(difference(index.below(b""), found))
        if known is not None and known.mode != files.permissions(top):
            changed_top = Change(b"", known, known._replace(mode=files.permissions(top)))
            return (changed_top, *changes)
        return changes

    def census(self) -> Census:
        """Changed and copied names cannot be distinguished here: only the cap is checked."""
        free = os.fstatvfs(self.shown)
        return Census(files=0, full=free.f_bavail == 0 or free.f_favail == 0)

    def close(self) -> None:
        self._undo.close()


def copied_changes(delta: Delta) -> Delta:
    """A delta without artefacts of the copying: pipes and sockets are not copied, so they are
    missing without having been removed."""
    return tuple(
        change
        for change in delta
        if change.after or not change.before or change.before.kind is not Kind.OTHER
    )


def listing(
    top: int,
    skip: frozenset[bytes],
    scale: Scale | None = None,
    known: Mapping[bytes, Known] | None = None,
) -> dict[bytes, Entry]:
    """All entries below an open folder, except the paths in `skip`. Folders have no digest.

    Every file is read, except those whose stamp equals the one in `known`.
    """
    found: dict[bytes, Entry] = {}
    waiting = [b""]
    with contextlib.ExitStack() as opened_up:
        while waiting:
            path = waiting.pop()
            folder = files.open_folder(path, top)
            try:
                for name in map(os.fsencode, os.listdir(folder)):
                    where = joined(path, name)
                    if where in skip:
                        continue
                    look = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if files.kind_of(look.st_mode) is Kind.FOLDER:
                        found[where] = files.entry_of(look, b"")
                        opened_up.enter_context(files.opened_up(name, folder, look))
                        waiting.append(where)
                        continue
                    if scale is not None:
                        scale.add(where, look)
                    before = known.get(where) if known is not None else None
                    if before is not None and before.stamp == stamp_of(look):
                        found[where] = before.entry
                        continue
                    with files.opened_up(name, folder, look):
                        digest = files.read_digest(name, folder, look)
                    found[where] = files.entry_of(look, digest)
            finally:
                os.close(folder)
    return found
