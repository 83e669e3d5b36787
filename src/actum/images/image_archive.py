"""The files of an image archive by name: those of a folder, or of a tar archive.

Names of an archive are looked up here and never used as paths. A folder's files are opened below
it without following a link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import IO, Protocol

from actum import kernel
from actum.images.bounded_stream import BoundedStream, Budget, is_gzip, require_readable
from actum.images.image_bounds import Bounds, invalid, shown, too_large
from actum.images.tar_reader import Kind, members

_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Files(Protocol):
    """Named files of an archive."""

    def has(self, name: str) -> bool: ...
    def open(self, name: str) -> contextlib.AbstractContextManager[tuple[IO[bytes], int]]:
        """The file, at its first byte, and its size. Refuses a missing one."""


class FolderFiles:
    """The files of an OCI layout on this host."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        try:
            os.close(kernel.open_beneath(self._folder, _path(name), os.O_PATH))
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        try:
            descriptor = kernel.open_beneath(self._folder, _path(name), _READ)
        except OSError as error:
            raise _missing(name) from error
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise invalid(f"{shown(name)} is no regular file")
            yield file, found.st_size


class TarFiles:
    """The files of a tar archive that can seek."""

    def __init__(self, file: IO[bytes], budget: Budget) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        self._budget = budget
        self._index()

    def _index(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        stream = _Positioned(self._file, size)
        bounds = self._budget.bounds
        for count, member in enumerate(members(stream, bounds)):
            if count >= bounds.entries:
                raise too_large(f"it has more than {bounds.entries} names")
            name = os.fsdecode(member.name).removeprefix("./")
            if member.kind is Kind.FILE:
                # A second entry of one name could be the one that another reader takes.
                if name in self._places and _is_ours(name):
                    raise invalid(f"{shown(member.name)} is in the archive twice")
                self._places[name] = stream.at, member.size
                stream.skip(member.size)
            elif member.kind is Kind.LINK:
                target = os.path.join(os.path.dirname(name), os.fsdecode(member.target))
                self._links[name] = os.path.normpath(target)

    def has(self, name: str) -> bool:
        return self._place(name) is not None

    def _place(self, name: str) -> tuple[int, int] | None:
        # `docker save` writes a layer that two images share once, and a link for the other.
        return self._places.get(name) or self._places.get(self._links.get(name, ""))

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        place = self._place(name)
        if place is None:
            raise _missing(name)
        self._file.seek(place[0])
        yield self._file, place[1]

    @contextlib.contextmanager
    def whole(self) -> Iterator[tuple[IO[bytes], int]]:
        """The archive itself."""
        self._file.seek(0)
        yield self._file, os.fstat(self._file.fileno()).st_size


class _Positioned(BoundedStream):
    """Headers of a plain archive; contents are skipped by seeking."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size
        self.at = 0

    def read(self, size: int) -> bytes:
        part = self._file.read(size)
        self.at += len(part)
        return part

    def skip(self, size: int) -> None:
        if self.at + size > self._size:
            raise invalid("the archive ends in the middle of an entry")
        self.at += size
        self._file.seek(self.at)


def _path(name: str) -> bytes:
    """A name of a manifest as a path. The kernel ends a path at a NUL."""
    path = name.encode("utf-8", "replace")
    if b"\0" in path:
        raise invalid(f"it names {shown(name)}")
    return path


def _is_ours(name: str) -> bool:
    return name in ("manifest.json", "index.json", "oci-layout") or name.startswith("blobs/")


def _missing(name: str) -> Exception:
    return invalid(f"it names {shown(name)}, which is not in the archive")


@contextlib.contextmanager
def seekable(source: IO[bytes], spool: str, bounds: Bounds) -> Iterator[IO[bytes]]:
    """A plain, seekable archive: `source` itself, or a copy without a name in the folder `spool`,
    decompressed if it is gzip."""
    with contextlib.ExitStack() as copies:
        if not source.seekable():
            copy = copies.enter_context(_unnamed(spool))
            _copy(source, copy, bounds)
            source = copy
        head = source.read(8)
        source.seek(0)
        require_readable(head)
        if is_gzip(head):
            copy = copies.enter_context(_unnamed(spool))
            # A copy is no part of the image, so it has a budget of its own.
            stream = BoundedStream(source, os.fstat(source.fileno()).st_size, Budget(bounds))
            while part := stream.read(_CHUNK):
                copy.write(part)
            source = copy
        source.seek(0)
        yield source


def _copy(source: IO[bytes], copy: IO[bytes], bounds: Bounds) -> None:
    size = 0
    while part := source.read(_CHUNK):
        size += len(part)
        if size > bounds.content_bytes:
            raise too_large(f"the input has more than {bounds.content_bytes >> 20} MiB")
        copy.write(part)
    copy.seek(0)


def _unnamed(folder: str) -> IO[bytes]:
    """A file without a name, in the file system of the images: a killed process leaves nothing."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    return os.fdopen(os.open(folder, flags, 0o600), "w+b")
