"""The copy engine: for hosts whose kernel does not let this user mount an overlay.

The workspace is copied to a tmpfs of bounded size, shown in its place, and compared as a whole
afterwards. Time and memory grow with the workspace; the receipt names this engine. The tests
compare the overlay engine with it.

Containers are shown a copy on the disk instead: their engine finds files of the host only. Nothing
there limits what is written, so `census` measures it, and `delta` refuses what is too large.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from actum import removal
from actum.errors import Refused
from actum.value import value
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
            if ground.on_host is None:
                self._anchor = private_tmpfs(ground, undo)
            else:
                self._anchor = _host_folder(ground.on_host, undo)
            os.mkdir(_COPY, dir_fd=self._anchor)
            self.shown = os.open(_COPY, files.FOLDER_FLAGS, dir_fd=self._anchor)
            undo.callback(os.close, self.shown)
            self._copied_bytes = copy_tree(base, self.shown, self._left_out, self.owner)
            self._now_shown = _COPY
            self._measured = _measured(self._anchor) if ground.on_host is not None else _NOTHING
            self._before = self._measured
            self._undo = undo.pop_all()

    @property
    def host_folders(self) -> Mapping[str, str]:
        host = self._ground.on_host
        return {str(self._ground.place): "" if host is None else str(host / self._now_shown)}

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        return namespace.seen_owner((look.st_uid, look.st_gid), self._top)

    @property
    def _left_out(self) -> frozenset[bytes]:
        inner = self._ground.inner_home
        return frozenset() if inner is None else frozenset({os.fsencode(inner)})

    @contextlib.contextmanager
    def show(self) -> Iterator[None]:
        with self._shown(_COPY):
            yield

    @contextlib.contextmanager
    def show_for_trial(self) -> Iterator[None]:
        with namespace.standing_in(f"/proc/self/fd/{self._anchor}"):
            os.mkdir(_TRIAL)
            trial = os.open(_TRIAL, files.FOLDER_FLAGS)
        try:
            copy_tree(self.shown, trial, self._left_out)
        finally:
            os.close(trial)
        with self._shown(_TRIAL):
            yield

    @contextlib.contextmanager
    def _shown(self, name: str) -> Iterator[None]:
        def mount() -> None:
            for left_out in self._left_out:  # the mount point of the home
                with contextlib.suppress(FileExistsError):
                    os.makedirs(os.path.join(os.fsencode(name), left_out))
            namespace.attach(name, str(self._ground.place))

        before, self._now_shown = self._now_shown, name
        try:
            with shown_over(self._ground, self._anchor, mount):
                yield
        finally:
            self._now_shown = before

    def delta(self, index: Index) -> Delta:
        self._require_bounded()
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
        """Changed and copied names cannot be distinguished here: only the cap is checked, and on
        the host also how many names there are more than at the start."""
        if self._ground.on_host is not None:
            # A large tree takes long to measure: a tenth of the time at most.
            if time.monotonic() >= self._measured.again_at:
                self._measured = _measured(self._anchor)
            return self._growth()
        free = os.fstatvfs(self.shown)
        return Census(files=0, full=free.f_bavail == 0 or free.f_favail == 0)

    def _require_bounded(self) -> None:
        """The kernel bounds a tmpfs; on the disk the bounds of one hold for the result."""
        if self._ground.on_host is None:
            return
        self._measured = _measured(self._anchor)
        if self._growth().full:
            raise Refused(
                "WORK_TOO_LARGE",
                f"The work item has written more than {self._ground.cap_bytes} bytes or"
                f" {self._ground.cap_names} names.",
                remedy="Divide the work, or let tools write to /tmp what is not part of it.",
            )

    def _growth(self) -> Census:
        now, before = self._measured, self._before
        files, folders = now.files - before.files, now.folders - before.folders
        over = now.held - before.held > self._ground.cap_bytes
        return Census(
            files=max(0, files),
            folders=max(0, folders),
            full=over or files + folders > self._ground.cap_names,
        )

    def close(self) -> None:
        self._undo.close()


@value
class _Measured:
    """What a folder takes of a disk."""

    held: int
    files: int
    folders: int
    again_at: float  #: on the monotonic clock


_COPY, _TRIAL = "copy", "trial"
_NOTHING = _Measured(held=0, files=0, folders=0, again_at=0.0)


def _host_folder(folder: Path, undo: contextlib.ExitStack) -> int:
    """Make and open a folder in a removable one; `undo` removes it."""
    os.mkdir(folder, 0o700)
    undo.callback(_removed, folder)
    anchor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    undo.callback(os.close, anchor)
    return anchor


def _removed(folder: Path) -> None:
    # What stays is removed with the folder above.
    with contextlib.suppress(removal.RemovalRefused, OSError):
        removal.remove_part(folder.parent, folder.name)


def _measured(top: int) -> _Measured:
    """Tools write meanwhile: names come and go."""
    began, held, files_there, folders, waiting = time.monotonic(), 0, 0, 0, [b""]
    while waiting:
        path = waiting.pop()
        try:
            folder = files.open_folder(path, top)
        except OSError:
            continue  # gone, or closed by the tool
        try:
            for name in map(os.fsencode, os.listdir(folder)):
                look = files.look(name, folder)
                if look is None:
                    continue
                held += look.st_blocks * 512
                if files.kind_of(look.st_mode) is Kind.FOLDER:
                    folders += 1
                    waiting.append(joined(path, name))
                else:
                    files_there += 1
        finally:
            os.close(folder)
    took = time.monotonic() - began
    return _Measured(held=held, files=files_there, folders=folders, again_at=began + 10 * took)


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
