"""The overlay engine: the kernel puts changes into an upper layer, on a tmpfs of bounded size.

Showing costs a mount, whatever the workspace holds. The delta costs the changes: the upper says
which names to look at, and the merged view says what is there. So nothing here interprets
whiteouts; the kernel has done it. Two marks are read: of a folder that was made anew (opaque), in
which a name that is not in the upper is gone, and of one that was renamed (redirect), below which
every name has a new path. In folders with either, all names are looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from actum import kernel
from actum.errors import Refused
from actum.sandbox.spawner import TOOL_ID
from actum.workspace import files, namespace
from actum.workspace.engine import Census, Ground, Scale, home_kept, take_away
from actum.workspace.index import Index
from actum.workspace.tree import Change, Delta, Entry, Kind, joined

#: Marks on a folder of the upper; an ordinary user's overlay knows no redirects.
_MARKS = ("trusted.overlay.opaque", "trusted.overlay.redirect")
_USER_MARKS = ("user.overlay.opaque",)


class OverlayEngine:
    """Made and used inside of a namespace of its own (`namespace.enter`)."""

    name = "overlay"

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._room = str(ground.room / "mounts")
        os.mkdir(self._room, 0o700)
        options = f"mode=700,size={ground.cap_bytes},nr_inodes={ground.cap_names}"
        kernel.mount("tmpfs", self._room, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        top = os.stat(ground.base)
        view = namespace.tool_view(top.st_uid, top.st_gid) if os.geteuid() == 0 else -1
        with namespace.standing_in(self._room):
            for name in ("lower", "view", "work", "trial", "upper"):
                os.mkdir(name)
            _same_top("upper", top)
            inner = ground.inner_home
            if inner is not None and not (ground.base / inner).exists():
                os.makedirs(f"upper/{inner}")
            namespace.attach(str(ground.base), "lower", view=view)
            namespace.attach(".", "view", view=view)
        self._upper = os.open(f"{self._room}/upper", files.FOLDER_FLAGS)
        self._anchor = os.open(self._room, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.shown = -1
        self._top = top

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        if os.geteuid() != 0:
            return look.st_uid, look.st_gid
        top = self._top
        uid = {TOOL_ID: top.st_uid, top.st_uid: TOOL_ID}.get(look.st_uid, look.st_uid)
        gid = {TOOL_ID: top.st_gid, top.st_gid: TOOL_ID}.get(look.st_gid, look.st_gid)
        return uid, gid

    @contextlib.contextmanager
    def show(self) -> Iterator[None]:
        with self._mounted("lower", "view/upper", "view/work"):
            self.shown = os.open(self._ground.place, files.FOLDER_FLAGS)
            try:
                yield
            finally:
                os.close(self.shown)
                self.shown = -1

    @contextlib.contextmanager
    def show_for_trial(self) -> Iterator[None]:
        with namespace.standing_in(f"/proc/self/fd/{self._anchor}"):
            os.mkdir("trial/upper")
            os.mkdir("trial/work")
            _same_top("trial/upper", os.stat("upper"))
        with self._mounted("view/upper:lower", "view/trial/upper", "view/trial/work"):
            yield

    @contextlib.contextmanager
    def _mounted(self, lower: str, upper: str, work: str) -> Iterator[None]:
        ground = self._ground
        # As root a renamed folder is a mark; as a user the kernel makes programs copy it.
        mode = "redirect_dir=on,metacopy=off,index=off" if os.geteuid() == 0 else "userxattr"
        options = f"lowerdir={lower},upperdir={upper},workdir={work},{mode}"
        with home_kept(ground), namespace.standing_in(f"/proc/self/fd/{self._anchor}"):
            kernel.mount(
                "overlay",
                str(ground.place),
                "overlay",
                kernel.MS_NOSUID | kernel.MS_NODEV,
                options,
            )
        try:
            yield
        finally:
            take_away(ground)

    def delta(self, index: Index) -> Delta:
        changes: list[Change] = []
        top = os.fstat(self.shown)
        known = index.entry(b"")
        if known is not None and known.mode != files.permissions(top):
            changes.append(Change(b"", known, known._replace(mode=files.permissions(top))))
        waiting = [(b"", False)]
        scale = Scale(self._ground.cap_bytes)
        while waiting:
            path, displaced = waiting.pop()
            for change, folder in self._folder_changes(path, displaced, index, scale):
                if change is not None:
                    changes.append(change)
                if folder is not None:
                    waiting.append(folder)
        return tuple(sorted(changes, key=lambda change: change.path))

    def _folder_changes(
        self, path: bytes, displaced: bool, index: Index, scale: Scale
    ) -> Iterator[tuple[Change | None, tuple[bytes, bool] | None]]:
        """What differs right in one folder, and the folders in it that need a look."""
        known = index.entries(path)
        touched, marked = self._touched(path)
        displaced = displaced or marked
        merged = files.open_folder(path, self.shown)
        try:
            # Without a mark, what the upper does not name is the lower's, which nobody writes to.
            names = {*known, *map(os.fsencode, os.listdir(merged))} if displaced else touched
            if not path:
                names -= self._ground.left_out
            for name in sorted(names):
                where, before = joined(path, name), known.get(name)
                look = files.look(name, merged)
                if look is None:
                    if before is not None:
                        yield from ((change, None) for change in _deleted(where, before, index))
                    continue
                if files.kind_of(look.st_mode) is Kind.FOLDER:
                    was_folder = before is not None and before.kind is Kind.FOLDER
                    after = files.entry_of(look, b"")
                    differs = not was_folder or (before and before.mode != after.mode)
                    yield (
                        Change(where, before, after) if differs else None,
                        (where, displaced or not was_folder),
                    )
                    continue
                if not displaced or name in touched:
                    scale.add(where, look)  # what was only moved lies below, and has no bound
                after = files.entry_of(look, files.read_digest(name, merged, look))
                if before is not None and before.kind is Kind.FOLDER:
                    for below, entry in index.below(where):
                        yield Change(below, entry, None), None
                if after != before:
                    yield Change(where, before, after), None
        finally:
            os.close(merged)

    def _touched(self, path: bytes) -> tuple[set[bytes], bool]:
        """Names that the upper holds of one folder, and whether what else is in it may be gone."""
        try:
            folder = files.open_folder(path, self._upper)
        except (FileNotFoundError, NotADirectoryError):
            return set(), False
        try:
            return set(map(os.fsencode, os.listdir(folder))), _is_marked(folder)
        finally:
            os.close(folder)

    def census(self) -> Census:
        found = 0
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            # What goes meanwhile is not there; what lies too deep to be named ends the run later.
            with contextlib.suppress(OSError, Refused):
                folder = files.open_folder(path, self._upper)
                try:
                    with os.scandir(folder) as names:
                        for name in names:
                            if name.is_dir(follow_symlinks=False):
                                waiting.append(joined(path, os.fsencode(name.name)))
                            else:
                                found += 1
                finally:
                    os.close(folder)
        # Through the descriptor of the tmpfs itself: this may run in a thread beside others.
        room = os.fstatvfs(self._upper)
        return Census(files=found, full=room.f_bavail == 0 or room.f_favail == 0)

    def close(self) -> None:
        os.close(self._upper)
        os.close(self._anchor)
        kernel.umount_detach(self._room)
        os.rmdir(self._room)


def _deleted(path: bytes, entry: Entry, index: Index) -> Iterator[Change]:
    yield Change(path, entry, None)
    if entry.kind is Kind.FOLDER:
        yield from (Change(below, found, None) for below, found in index.below(path))


def _is_marked(folder: int) -> bool:
    for mark in _MARKS if os.geteuid() == 0 else _USER_MARKS:
        try:
            os.getxattr(folder, mark)
        except OSError as error:
            if error.errno == errno.ENODATA:
                continue
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True  # also where marks cannot be kept: then all names are looked at
    return False


def _same_top(folder: str, top: os.stat_result) -> None:
    """The merged view takes mode and owner of its topmost folder from the upper."""
    if os.geteuid() == 0:
        os.chown(folder, top.st_uid, top.st_gid)
    os.chmod(folder, stat.S_IMODE(top.st_mode))
    os.utime(folder, ns=(top.st_atime_ns, top.st_mtime_ns))
