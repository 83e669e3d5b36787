"""A folder as a manifest, and its contents once more for the upload.

Each file is opened relative to its folder, through no link, read to its end and compared with its
metadata from before and after: a file that changes meanwhile is read again, and refused if it never
rests. The names of the whole tree are looked at once more after the upload (`Scan.is_same`), so a
snapshot is a state that the folder had.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from actum.errors import Refused
from actum.runs.transport import snapshot_manifest
from actum.runs.transport.snapshot_manifest import (
    LEFT_OUT,
    PART_BYTES,
    Listed,
    Manifest,
    SnapshotBounds,
    too_large,
)
from actum.value import field, value
from actum.workspace import files
from actum.workspace.copies import Stamp, stamp_of
from actum.workspace.tree import Kind, joined, name_of, parent_of, shown

_READS = 3
_CHUNK = 1 << 20


class Changed(Exception):
    """A name changed while it was read; the text is its path."""


@value
class Scan:
    """One look at a folder."""

    top: Path
    manifest: Manifest
    stamps: Mapping[bytes, Stamp] = field(repr=False)

    def is_same(self, bounds: SnapshotBounds) -> bool:
        """Whether no name has changed since."""
        try:
            return _stamped(self.top, bounds) == self.stamps
        except Changed:
            return False


def scan(top: Path, bounds: SnapshotBounds) -> Scan:
    """Read a folder. Raises `Refused` for one that no snapshot can hold, or that never rests."""
    for left in reversed(range(_READS)):
        try:
            return _scanned(top, bounds)
        except Changed as changed:
            if not left:
                raise busy(top, str(changed)) from None
    raise AssertionError("unreachable")


def _scanned(top: Path, bounds: SnapshotBounds) -> Scan:
    stamps = _stamped(top, bounds)
    entries: dict[bytes, Listed] = {}
    anchor = _opened(top)
    try:
        folder, where = -1, None
        try:
            for path, stamp in stamps.items():
                if path and parent_of(path) != where:
                    if folder >= 0:
                        os.close(folder)
                        folder = -1
                    where = parent_of(path)
                    folder = _folder(where, anchor)
                entries[path] = _listed(path, stamp, folder)
        finally:
            if folder >= 0:
                os.close(folder)
    finally:
        os.close(anchor)
    return Scan(top=top, manifest=snapshot_manifest.of(entries, bounds), stamps=stamps)


def _stamped(top: Path, bounds: SnapshotBounds) -> dict[bytes, Stamp]:
    """Every name with its metadata, grouped by folder."""
    stamps: dict[bytes, Stamp] = {}
    anchor = _opened(top)
    try:
        files.require_no_mounts(anchor, LEFT_OUT)
        found = os.fstat(anchor)
        device = found.st_dev
        stamps[b""] = stamp_of(found)
        waiting = [b""]
        size = 0
        while waiting:
            path = waiting.pop()
            folder = _folder(path, anchor)
            try:
                for name in sorted(map(os.fsencode, os.listdir(folder))):
                    if not path and name in LEFT_OUT:
                        continue
                    below = joined(path, name)
                    look = files.look(name, folder)
                    if look is None:
                        raise Changed(shown(below))
                    if look.st_dev != device:
                        raise files.another_mount(below)
                    kind = files.kind_of(look.st_mode)
                    if kind is Kind.OTHER:
                        raise _no_content(below)
                    if kind is Kind.FOLDER:
                        waiting.append(below)
                    elif kind is Kind.FILE:
                        size += look.st_size
                    stamps[below] = stamp_of(look)
                    if len(stamps) > bounds.entries:
                        raise too_large(f"it has more than {bounds.entries} names")
                    if size > bounds.content_bytes:
                        raise too_large(f"its files have more than {bounds.content_bytes} bytes")
            finally:
                os.close(folder)
    finally:
        os.close(anchor)
    return stamps


def _listed(path: bytes, stamp: Stamp, folder: int) -> Listed:
    _, mode, size, _, _ = stamp
    permissions = mode & 0o777
    match files.kind_of(mode):
        case Kind.FOLDER:
            return Listed(Kind.FOLDER, permissions)
        case Kind.LINK:
            try:
                target = os.readlink(name_of(path), dir_fd=folder)
            except OSError as error:
                raise Changed(shown(path)) from error
            return Listed(Kind.LINK, target=target)
        case _:
            pass
    descriptor = _file(path, folder)
    try:
        for _ in range(_READS):
            before = os.fstat(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            listed = _digested(descriptor, permissions)
            if stamp_of(os.fstat(descriptor)) == stamp_of(before) == stamp and listed.size == size:
                return listed
            if stamp_of(before) != stamp:
                break  # the names were read before this: begin again
    finally:
        os.close(descriptor)
    raise Changed(shown(path))


def _digested(descriptor: int, permissions: int) -> Listed:
    whole = hashlib.sha256()
    parts: list[bytes] = []
    size = 0
    while True:
        part = hashlib.sha256()
        read = 0
        while read < PART_BYTES and (chunk := os.read(descriptor, min(_CHUNK, PART_BYTES - read))):
            whole.update(chunk)
            part.update(chunk)
            read += len(chunk)
        size += read
        if read:
            parts.append(part.digest())
        if read < PART_BYTES:
            break
    listed = tuple(parts) if size > PART_BYTES else ()
    return Listed(Kind.FILE, permissions, size, whole.digest(), listed)


class Contents:
    """The contents of a scanned folder, read a second time and compared with their digests."""

    def __init__(self, scanned: Scan) -> None:
        self._top = _opened(scanned.top)

    def close(self) -> None:
        os.close(self._top)

    def read(self, path: bytes, offset: int, size: int, digest: bytes) -> bytes:
        """Raises `Changed` if the file does not have them any more. Safe to call by threads."""
        folder = _folder(parent_of(path), self._top)
        try:
            descriptor = _file(path, folder)
        finally:
            os.close(folder)
        try:
            content = bytearray()
            while len(content) < size and (
                chunk := os.pread(descriptor, size - len(content), offset + len(content))
            ):
                content += chunk
        finally:
            os.close(descriptor)
        if hashlib.sha256(content).digest() != digest:
            raise Changed(shown(path))
        return bytes(content)


def _opened(top: Path) -> int:
    try:
        return os.open(top, files.FOLDER_FLAGS)
    except OSError as error:
        raise Refused(
            "SNAPSHOT_SOURCE_MISSING",
            f"{top} cannot be read as a folder: {error.strerror}.",
            remedy="Check the path. A link to a folder is not followed.",
        ) from error


def _folder(path: bytes, anchor: int) -> int:
    try:
        return files.open_folder(path, anchor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Changed(shown(path)) from error


def _file(path: bytes, folder: int) -> int:
    try:
        descriptor = os.open(name_of(path), files.FILE_FLAGS, dir_fd=folder)
    except PermissionError as error:
        raise files.closed(path) from error
    except OSError as error:
        raise Changed(shown(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Changed(shown(path))
    return descriptor


def busy(top: Path, path: str) -> Refused:
    return Refused(
        "WORKSPACE_BUSY",
        f"{top} was changed while it was read, {_READS} times; the last time at {path}.",
        remedy="No snapshot was saved. End the program that writes to it, then try again.",
    )


def _no_content(path: bytes) -> Refused:
    return Refused(
        "SNAPSHOT_INVALID",
        f"{shown(path)} is a pipe, a socket or a device, which no snapshot holds.",
        remedy="Remove it, or move it out of the folder.",
    )
