"""The overlay engine: the kernel puts changes into an upper layer, on a tmpfs of bounded size.

Showing costs one mount, however large the workspace is. The cost of a delta grows with the changes:
the upper layer lists the changed names, and the merged view has their content. So nothing here
interprets whiteouts; the kernel does. Two attributes are read: `opaque` of a folder that was
removed and made again, in which a name that is not in the upper layer is gone, and `redirect` of a
renamed folder, below which every name has a new path. In folders with either, all names are
compared.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping

from actum import kernel
from actum.errors import Refused
from actum.workspace import files, namespace
from actum.workspace.engine import (
    Census,
    Ground,
    Scale,
    private_tmpfs,
    shown_over,
)
from actum.workspace.index import Index
from actum.workspace.tree import Change, Delta, Entry, Kind, joined

#: Attributes of a folder in the upper layer; an ordinary user's overlay has no redirects.
_MARKS = ("trusted.overlay.opaque", "trusted.overlay.redirect")
_USER_MARKS = ("user.overlay.opaque",)


class OverlayUnsupported(Refused):
    """This kernel or file system supports no overlay here; the copy engine works everywhere."""


class OverlayEngine:
    """Made and used inside of a namespace of its own (`namespace.enter`)."""

    name = "overlay"

    def __init__(self, ground: Ground) -> None:
        """Raises `OverlayUnsupported` where this host cannot mount an overlay over the workspace.

        A step that fails undoes the steps before it.
        """
        self._ground = ground
        self.shown = -1
        self._top = top = os.stat(ground.base)
        with contextlib.ExitStack() as undo:
            self._anchor = private_tmpfs(ground, undo)
            with namespace.standing_in(f"/proc/self/fd/{self._anchor}"):
                for name in ("lower", "upper", "work", "trial", "probe"):
                    os.mkdir(name)
                owner = namespace.seen_owner((top.st_uid, top.st_gid), top)
                _same_top("upper", top, owner)
                inner = ground.inner_home
                if inner is not None and not (ground.base / inner).exists():
                    os.makedirs(f"upper/{inner}")
                self._upper = os.open("upper", files.FOLDER_FLAGS)
                undo.callback(os.close, self._upper)
                view = namespace.tool_view(top.st_uid, top.st_gid) if os.geteuid() == 0 else -1
                with _unsupported_if_it_fails(ground):
                    namespace.attach_read_only(str(ground.base), "lower", view=view)
                    _probe_marks("upper")
                    _mount("probe", "lower", "upper", "work")
                    kernel.umount_detach("probe")
            self._undo = undo.pop_all()

    @property
    def host_folders(self) -> Mapping[str, str]:
        return {str(self._ground.place): ""}

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        return namespace.seen_owner((look.st_uid, look.st_gid), self._top)

    @contextlib.contextmanager
    def show(self) -> Iterator[None]:
        with self._mounted("lower", "upper", "work"):
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
            upper = os.stat("upper")
            _same_top("trial/upper", upper, (upper.st_uid, upper.st_gid))
        with self._mounted("upper:lower", "trial/upper", "trial/work"):
            yield

    def _mounted(
        self, lower: str, upper: str, work: str
    ) -> contextlib.AbstractContextManager[None]:
        place = str(self._ground.place)
        return shown_over(self._ground, self._anchor, lambda: _mount(place, lower, upper, work))

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
        """The changes directly in one folder, and the folders in it that have to be compared."""
        known = index.entries(path)
        touched, marked = self._touched(path)
        displaced = displaced or marked
        merged = files.open_folder(path, self.shown)
        try:
            # Without an attribute, a name that is not in the upper layer is unchanged.
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
                    scale.add(where, look)  # moved content is in the lower layer, and has no limit
                after = files.entry_of(look, files.read_digest(name, merged, look))
                if before is not None and before.kind is Kind.FOLDER:
                    for below, entry in index.below(where):
                        yield Change(below, entry, None), None
                if after != before:
                    yield Change(where, before, after), None
        finally:
            os.close(merged)

    def _touched(self, path: bytes) -> tuple[set[bytes], bool]:
        """The names of one folder in the upper layer, and whether its other names may be gone."""
        try:
            folder = files.open_folder(path, self._upper)
        except (FileNotFoundError, NotADirectoryError):
            return set(), False
        try:
            return set(map(os.fsencode, os.listdir(folder))), _is_marked(folder)
        finally:
            os.close(folder)

    def census(self) -> Census:
        found = folders = 0
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            # A folder may be removed meanwhile; a path that is too deep ends the run later.
            with contextlib.suppress(OSError, Refused):
                folder = files.open_folder(path, self._upper)
                try:
                    with os.scandir(folder) as names:
                        for name in names:
                            if name.is_dir(follow_symlinks=False):
                                folders += 1
                                waiting.append(joined(path, os.fsencode(name.name)))
                            else:
                                found += 1
                finally:
                    os.close(folder)
        # Through the descriptor of the tmpfs itself: other threads may run beside this one.
        free = os.fstatvfs(self._upper)
        return Census(files=found, folders=folders, full=free.f_bavail == 0 or free.f_favail == 0)

    def close(self) -> None:
        self._undo.close()


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
        return True  # also where attributes are not supported: then all names are compared
    return False


def _same_top(folder: str, top: os.stat_result, owner: tuple[int, int]) -> None:
    """The merged view takes mode and owner of its top folder from the upper layer."""
    if os.geteuid() == 0:
        os.chown(folder, *owner)
    os.chmod(folder, stat.S_IMODE(top.st_mode))
    os.utime(folder, ns=(top.st_atime_ns, top.st_mtime_ns))


def _mount(target: str, lower: str, upper: str, work: str) -> None:
    # As root a renamed folder gets `redirect`; for a user rename returns EXDEV.
    mode = "redirect_dir=on,metacopy=off,index=off" if os.geteuid() == 0 else "userxattr"
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{mode}"
    kernel.mount("overlay", target, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _probe_marks(folder: str) -> None:
    """Before Linux 6.6 a tmpfs has no user attributes, and an overlay without them cannot replace
    a removed folder."""
    if os.geteuid() != 0:
        os.setxattr(folder, "user.actum.probe", b"")
        os.removexattr(folder, "user.actum.probe")


@contextlib.contextmanager
def _unsupported_if_it_fails(ground: Ground) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OverlayUnsupported(
            "WORK_OVERLAY_UNSUPPORTED",
            f"No overlay can be mounted over {ground.base}: {error.strerror or error}.",
            remedy="Use `--engine auto` or `--engine copy`.",
        ) from error
