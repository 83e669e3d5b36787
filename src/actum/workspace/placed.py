"""Sealed inputs in the upper layer of a transaction, before the tool starts.

The tool reads them there, and changes them there if it may: a file in an upper layer needs no lower
one. A lower layer of their own would save a second copy, but the kernel accepts no lower layer that
is below another one, and the home is mostly in the granted folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from blake3 import blake3

from actum.contract.call import SealedInput
from actum.value import value
from actum.workspace import files, namespace
from actum.workspace.copies import dress, own
from actum.workspace.tree import Entry, Kind, joined

_CHUNK = 1 << 20


@value
class Placed:
    """One name of an upper layer, as it was before the tool started."""

    path: bytes  #: below the granted folder
    entry: Entry
    inode: int = 0  #: of a file; 0: not recorded
    ctime_ns: int = 0

    def is_untouched(self, look: os.stat_result) -> bool:
        """Whether a file was neither written nor replaced; only the kernel sets the ctime."""
        return (look.st_ino, look.st_ctime_ns) == (self.inode, self.ctime_ns)

    def entry_document(self) -> list[Any]:
        return [self.entry.kind.value, self.entry.mode, self.entry.digest.hex()]

    @classmethod
    def read(cls, path: bytes, document: list[Any]) -> Placed:
        kind, mode, digest = document
        return cls(path=path, entry=Entry(Kind(kind), mode, bytes.fromhex(digest)))


def place(inputs: Iterable[SealedInput], grant: str, upper: Path) -> tuple[Placed, ...]:
    """Put copies of sealed inputs, and their parent folders, into an upper layer.

    Owners are those that the layer shows. Raises `Refused` for an input on another mount than
    `grant`: an overlay shows one file system.
    """
    top = os.stat(grant, follow_symlinks=False)
    base, above = os.open(grant, files.FOLDER_FLAGS), os.open(upper, files.FOLDER_FLAGS)
    try:
        placed: list[Placed] = []
        ways: dict[bytes, os.stat_result] = {}
        for each in inputs:
            path = os.fsencode(os.path.relpath(each.path, grant))
            folder = _make_way(path, base, above, top, ways)
            try:
                placed.append(_copied(each, path, folder, top))
            finally:
                os.close(folder)
        # Deepest first: a name that is made changes the time of its folder.
        for path in sorted(ways, key=lambda way: way.count(b"/"), reverse=True):
            folder = files.open_folder(path, above)
            try:
                dress(folder, ways[path], namespace.seen_owner(own(ways[path]), top))
                placed.append(Placed(path=path, entry=files.entry_of(os.fstat(folder), b"")))
            finally:
                os.close(folder)
        return tuple(placed)
    finally:
        os.close(base)
        os.close(above)


def _make_way(
    path: bytes, base: int, above: int, top: os.stat_result, ways: dict[bytes, os.stat_result]
) -> int:
    """Make and open the parent of `path` in the layer. Adds the stat of each parent to `ways`."""
    *folders, _name = path.split(b"/")
    at = b""
    for name in folders:
        at = joined(at, name)
        if at not in ways:
            ways[at] = _folder_look(at, base, top)
            os.mkdir(at, 0o700, dir_fd=above)
    return files.open_folder(at, above)


def _folder_look(path: bytes, base: int, top: os.stat_result) -> os.stat_result:
    """Owner, mode and times of a folder; those of the top folder if it is gone already."""
    try:
        folder = files.open_folder(path, base)
    except (FileNotFoundError, NotADirectoryError):
        return top
    try:
        return os.fstat(folder)
    finally:
        os.close(folder)


def _copied(each: SealedInput, path: bytes, folder: int, top: os.stat_result) -> Placed:
    source = os.open(each.copy, files.FILE_FLAGS)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(path.rpartition(b"/")[2], flags, 0o600, dir_fd=folder)
        try:
            hasher = blake3()
            while chunk := os.read(source, _CHUNK):
                hasher.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(target, rest) :]
            look = os.fstat(source)
            dress(target, look, namespace.seen_owner(own(look), top))
            found = os.fstat(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    return Placed(
        path=path,
        entry=files.entry_of(found, hasher.digest()),
        inode=found.st_ino,
        ctime_ns=found.st_ctime_ns,
    )
