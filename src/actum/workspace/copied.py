"""A writable folder copied for one execution, where a file system does not support an overlay.

The copy is shown to the tool in the folder's place. The copied entries are stored as a list with
the stamps of the copies. When the tool is gone, the copy is compared with that list, and each
difference with the current folder. A path that differs from the list there as well was changed by
another program.

Stamps prove that a file was not changed only where the kernel changes the ctime with every write.
Elsewhere every file is read again: a tmpfs does not change its times on a write through a memory
map, and other file systems count seconds or have another machine's clock.
"""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actum import kernel
from actum.errors import Refused
from actum.runners.layers import COPY
from actum.store.whole_file import write_whole
from actum.value import replace, value
from actum.workspace import files, namespace
from actum.workspace.copies import COPY_LIST, Bounds, Known, copy_tree
from actum.workspace.copying import copied_changes, listing
from actum.workspace.engine import MIB
from actum.workspace.index import difference
from actum.workspace.placed import Placed
from actum.workspace.stamps import Looker
from actum.workspace.tree import Change, Entry, Kind, joined, parent_of
from actum.workspace.upper import Found

#: File systems whose ctime changes with every write: ext4, xfs, btrfs.
_KEEPS_TIMES = frozenset({0xEF53, 0x58465342, 0x9123683E})
_MILLISECOND_NS = 1_000_000


@value
class Start:
    """The copied entries."""

    names: Mapping[bytes, Known]
    hollow: frozenset[bytes]  #: covered inside the sandbox, and no part of the copy
    stamped: bool  #: whether the stamps of the copies prove anything

    def write(self, layer: Path) -> None:
        """Store it for another process, which decides about the changes later."""
        rows = [
            [
                _text(path),
                known.entry.kind,
                known.entry.mode,
                _text(known.entry.digest),
                known.stamp,
            ]
            for path, known in self.names.items()
        ]
        document = {
            "v": 1,
            "names": rows,
            "hollow": [_text(path) for path in sorted(self.hollow)],
            "stamped": self.stamped,
        }
        write_whole(layer / COPY_LIST, json.dumps(document).encode(), synced=False)

    @classmethod
    def read(cls, layer: Path) -> Start:
        document = json.loads((layer / COPY_LIST).read_bytes())
        return cls(
            names=dict(map(_known, document["names"])),
            hollow=frozenset(map(base64.b64decode, document["hollow"])),
            stamped=document["stamped"],
        )


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _known(row: list[Any]) -> tuple[bytes, Known]:
    path, kind, mode, digest, stamp = row
    entry = Entry(Kind(kind), mode, base64.b64decode(digest))
    return base64.b64decode(path), Known(entry, tuple(stamp) if stamp else None)


# -- before the tool -----------------------------------------------------------------------------


def make(grant: str, layer: Path, covered: tuple[str, ...], bounds: Bounds) -> Start:
    """Copy a folder to `layer`. `covered` are paths that the tool can neither read nor write.

    Raises `Refused` for a folder that is too large, cannot be read or holds a mount, and if the
    disk is full. The caller removes a partial copy.
    """
    hollow = frozenset(
        os.fsencode(os.path.relpath(path, grant))
        for path in covered
        if path.startswith(f"{grant}/")
    )
    base = kernel.open_exact(grant, files.FOLDER_FLAGS)
    try:
        _require_one_file_system(grant, covered)
        _require_fitting(base, grant, layer, hollow, bounds)
        top = os.fstat(base)
        os.mkdir(layer / COPY, 0o700)
        target = os.open(layer / COPY, files.FOLDER_FLAGS)
        try:
            names: dict[bytes, Known] = {}
            copy_tree(base, target, owner=_owner(top), hollow=hollow, noted=names, hard_links=True)
            return Start(names=names, hollow=hollow, stamped=_keeps_times(target))
        finally:
            os.close(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(grant, layer) from error
        raise
    finally:
        os.close(base)


def with_inputs(start: Start, placed: Iterable[Placed], layer: Path) -> Start:
    """Move sealed inputs from the upper layer, which the copy replaces, into the copy.

    They count as copied from the folder. So an input that the tool did not change is no change,
    whatever the folder holds by then.
    """
    names = dict(start.names)
    for each in sorted(placed, key=lambda name: name.path):  # a folder before its entries
        above = os.path.join(os.fsencode(layer / "upper"), each.path)
        copy = os.path.join(os.fsencode(layer / COPY), each.path)
        try:
            if each.entry.kind is not Kind.FOLDER:
                os.replace(above, copy)
            elif each.path in names:
                continue
            else:
                look = os.lstat(above)
                os.mkdir(copy)
                os.chown(copy, look.st_uid, look.st_gid)
                os.chmod(copy, each.entry.mode)
        except (IsADirectoryError, NotADirectoryError) as error:
            raise Refused(
                "PATH_CHANGED",
                f"{os.fsdecode(each.path)} is no longer the file that was checked.",
                remedy="Run again once nothing moves the input files.",
            ) from error
        names[each.path] = Known(each.entry, None)
    return replace(start, names=names)


def _owner(top: os.stat_result) -> Callable[[os.stat_result], tuple[int, int]]:
    return lambda look: namespace.seen_owner((look.st_uid, look.st_gid), top)


def _keeps_times(folder: int) -> bool:
    # An ext4 with small inodes counts seconds.
    is_fine = os.fstat(folder).st_ctime_ns % _MILLISECOND_NS != 0
    return is_fine and kernel.file_system_type(folder) in _KEEPS_TIMES


def _require_one_file_system(grant: str, covered: tuple[str, ...]) -> None:
    """A commit cannot replace a mount in the folder. A covered mount is not touched."""
    for mount in kernel.mount_points():
        inside = mount.startswith(f"{grant}/")
        if inside and not any(f"{mount}/".startswith(f"{path}/") for path in covered):
            raise files.another_mount(os.fsencode(os.path.relpath(mount, grant)))


def _require_fitting(
    base: int, grant: str, layer: Path, hollow: frozenset[bytes], bounds: Bounds
) -> None:
    """Measure the folder before the first byte is copied."""
    looker = Looker(os.fstat(base))
    held = names = 0
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        folder = files.open_folder(path, base)
        try:
            found = looker.look(folder, frozenset())
        finally:
            os.close(folder)
        names += len(found.names)
        held += found.file_bytes
        inside = [joined(path, name) for name in found.folders]
        waiting += [each for each in inside if each not in hollow]
        if names > bounds.names or held > bounds.mib * MIB:
            raise _too_large(grant, bounds)
    disk = os.statvfs(layer)
    # A file system that reports no size (ramfs): the copying finds out.
    if disk.f_blocks and held > disk.f_bavail * disk.f_frsize:
        raise _no_space(grant, layer)


_DIRECT = 'or let tools write directly: `[workspace] changes = "direct"` in actum.toml.'


def _too_large(grant: str, bounds: Bounds) -> Refused:
    return Refused(
        "COPY_TOO_LARGE",
        f"{grant} supports no overlay and is too large to be copied for each execution: it has more"
        f" than {bounds.names} names or {bounds.mib} MiB.",
        remedy="Grant the tool a smaller writable folder; raise `[workspace] copy_max_files` or"
        f" `copy_max_mb`; move the project to ext4, xfs or btrfs; {_DIRECT}",
    )


def _no_space(grant: str, layer: Path) -> Refused:
    return Refused(
        "COPY_NO_SPACE",
        f"{grant} supports no overlay, and its copy does not fit in {layer.parent.parent}.",
        remedy=f"Nothing ran and nothing was changed. Free some space; {_DIRECT}",
    )


# -- after the tool ------------------------------------------------------------------------------


def changes(copy: int, base: int, start: Start, *, over: bool) -> Found:
    """Compare an open copy with the copied entries and with the open folder `base`, when no process
    writes any more. `over`: a change by another program since then is no conflict."""
    found = listing(copy, start.hollow, known=start.names if start.stamped else None)
    compared = _Comparison(base, start, found)
    top = files.entry_of(os.fstat(copy), b"")
    if top != start.names[b""].entry:
        compared.add(Change(b"", start.names[b""].entry, top))
    before = ((path, known.entry) for path, known in start.names.items() if path)
    for change in copied_changes(difference(before, found)):
        compared.add(change)
    compared.add_ways()
    delta = tuple(sorted(compared.found.values(), key=lambda change: change.path))
    overtaken = set() if over else compared.overtaken & compared.found.keys()
    return Found(
        delta=delta,
        overtaken=tuple(sorted(overtaken)),
        left_out=tuple(sorted(compared.left_out)),
    )


class _Comparison:
    """The differences between a copy and the copied entries, compared with the current folder."""

    def __init__(self, base: int, start: Start, after: Mapping[bytes, Entry]) -> None:
        self.found: dict[bytes, Change] = {}
        self.overtaken: set[bytes] = set()
        self.left_out: set[bytes] = set()
        self._base, self._start, self._after = base, start, after

    def add(self, change: Change) -> None:
        path, after = change.path, change.after
        if after is not None and after.kind is Kind.OTHER:
            self.left_out.add(path)
            return
        now = files.entry_at(path, self._base)
        if now != change.before:
            self.overtaken.add(path)
        # The same change on both sides is no change.
        if now != after:
            self.found[path] = Change(path, now, after)
        if _is_folder(now) and not _is_folder(after):
            self._add_strangers(path)

    def _add_strangers(self, path: bytes) -> None:
        """Entries in a folder that the tool has removed and that were not in its copy: another
        program has added them since, or they could not be copied."""
        waiting = [path]
        while waiting:
            above = waiting.pop()
            folder = files.open_folder(above, self._base)
            try:
                names = list(map(os.fsencode, os.listdir(folder)))
            finally:
                os.close(folder)
            for where in (joined(above, name) for name in names):
                known = self._start.names.get(where)
                if known is not None and known.entry.kind is not Kind.OTHER:
                    continue  # compared separately
                now = files.entry_at(where, self._base)
                if now is None:
                    continue
                if known is None:
                    self.overtaken.add(where)
                self.found[where] = Change(where, now, None)
                if _is_folder(now):
                    waiting.append(where)

    def add_ways(self) -> None:
        """Folders that another program has removed and the tool has written to."""
        for path in list(_ways(change.path for change in self.found.values() if change.after)):
            now = files.entry_at(path, self._base)
            if path not in self.found and not _is_folder(now):
                self.overtaken.add(path)
                self.found[path] = Change(path, now, self._after[path])


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER


def _ways(paths: Iterator[bytes]) -> set[bytes]:
    """The parents of paths, all the way up, without the top."""
    found: set[bytes] = set()
    for path in paths:
        here = parent_of(path)
        while here and here not in found:
            found.add(here)
            here = parent_of(here)
    return found
