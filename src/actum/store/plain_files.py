"""Files of the home as they are on the disk: opened by descriptor, through no symlink.

For verification. A missing name, and a link, folder or pipe in the place of a file, are reported
and never followed. Nothing here blocks or writes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from blake3 import blake3

from actum import kernel
from actum.value import value

_CHUNK = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_HANDLE = os.O_PATH | os.O_NOFOLLOW


class NotPlain(Exception):
    """The name is not the expected file or folder; the text says what it is."""


@value
class Held:
    """What one name holds."""

    link: bool  #: its target is what it holds; else it is a regular file
    mode: int  #: permission bits
    sha256: str
    blake3: str


@contextmanager
def opened(folder: str | os.PathLike[str]) -> Iterator[int]:
    """A folder to start from."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def held(root: int, path: str) -> Held:
    """The digests of a file's bytes or of a link's target."""
    with _at(root, path, _HANDLE) as handle:
        found = os.fstat(handle)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink("", dir_fd=handle).encode("utf-8", "surrogateescape")
            digests = (hashlib.sha256(target).hexdigest(), blake3(target).hexdigest())
            return Held(link=True, mode=0o777, sha256=digests[0], blake3=digests[1])
    with _file(root, path) as descriptor:
        sha256, tree = hashlib.sha256(), blake3()
        while chunk := _read(descriptor, _CHUNK):
            sha256.update(chunk)
            tree.update(chunk)
        mode = os.fstat(descriptor).st_mode & 0o777
        return Held(link=False, mode=mode, sha256=sha256.hexdigest(), blake3=tree.hexdigest())


def file_held(root: int, path: str) -> Held:
    """The digests of a regular file; raises for a link."""
    with _file(root, path):
        return held(root, path)


def content(root: int, path: str, most_bytes: int) -> bytes:
    """All bytes of a regular file, at most `most_bytes`."""
    with _file(root, path) as descriptor:
        if os.fstat(descriptor).st_size > most_bytes:
            raise NotPlain(f"it has more than {most_bytes} bytes")
        pieces = []
        while chunk := _read(descriptor, _CHUNK):
            pieces.append(chunk)
        return b"".join(pieces)


def names(root: int, path: str = ".") -> tuple[str, ...]:
    """What a folder holds, sorted."""
    with _at(root, path, _FOLDER) as descriptor:
        return tuple(sorted(os.listdir(descriptor)))


def is_there(root: int, path: str) -> bool:
    """Whether anything has this name, whatever it is."""
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return True


def is_folder(root: int, path: str) -> bool:
    try:
        with _at(root, path, _FOLDER):
            return True
    except NotPlain:
        return False


@contextmanager
def _file(root: int, path: str) -> Iterator[int]:
    with _at(root, path, _FILE) as descriptor:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise NotPlain("a folder is in its place")
        if not stat.S_ISREG(mode):
            raise NotPlain("it is not a regular file")
        yield descriptor


@contextmanager
def _at(root: int, path: str, flags: int) -> Iterator[int]:
    try:
        descriptor = kernel.open_beneath(root, path, flags)
    except OSError as error:
        raise NotPlain(_said(error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _said(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "it is missing"
    if error.errno == errno.ELOOP:
        return "a symbolic link is in its place or on the way to it"
    if error.errno == errno.ENOTDIR:
        return "a file is in the place of a folder"
    if error.errno == errno.ENXIO:
        return "it is not a regular file"
    return f"it cannot be read: {error.strerror}"


def _read(descriptor: int, most: int) -> bytes:
    try:
        return os.read(descriptor, most)
    except OSError as error:
        raise NotPlain(_said(error)) from error
