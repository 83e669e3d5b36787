"""Looking at one name on a disk: what kind of thing it is, and the digest of what it holds.

Everything is opened relative to a folder that is open already, never through a link, and never so
that opening could wait (a pipe in the place of a file).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from blake3 import blake3

from actum import kernel
from actum.errors import Refused
from actum.workspace.tree import (
    PERMISSIONS,
    Entry,
    Kind,
    content_digest,
    name_of,
    parent_of,
    shown,
)

#: Links have no permissions of their own; Linux shows all of them.
_LINK_MODE = 0o777
_CHUNK = 1 << 20
#: `copy_file_range` refuses with one of these what `sendfile` can do.
_CANNOT_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM)
LONGEST_PATH = 4_095
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def permissions(found: os.stat_result) -> int:
    return _LINK_MODE if stat.S_ISLNK(found.st_mode) else found.st_mode & PERMISSIONS


def entry_of(found: os.stat_result, digest: bytes) -> Entry:
    return Entry(kind_of(found.st_mode), permissions(found), digest)


def read_digest(name: bytes, folder: int, found: os.stat_result) -> bytes:
    """The digest of a file's bytes or a link's target; of nothing for what is neither."""
    if stat.S_ISLNK(found.st_mode):
        return content_digest(os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(found.st_mode):
        return content_digest(b"")
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    except PermissionError as error:
        raise closed(name) from error
    try:
        return digest_of(descriptor)
    finally:
        os.close(descriptor)


def digest_of(descriptor: int) -> bytes:
    """BLAKE3 of all bytes, holes included."""
    hasher = blake3()
    while chunk := os.read(descriptor, _CHUNK):
        hasher.update(chunk)
    return hasher.digest()


def open_folder(path: bytes, anchor: int) -> int:
    """A folder below `anchor`, through no link and across no mount; the caller closes it.

    Raises `Refused` for a path that no program could name, and where something is mounted.
    """
    if not path:
        return os.open(b".", FOLDER_FLAGS, dir_fd=anchor)
    if len(path) > LONGEST_PATH:
        raise _too_long(path)
    try:
        return kernel.open_within(anchor, path, FOLDER_FLAGS)
    except PermissionError as error:
        raise closed(path) from error
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise another_mount(path) from error
        if error.errno == errno.ELOOP:  # a link on the way is no folder
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        raise


def require_no_mounts(top: int, skip: frozenset[bytes]) -> None:
    """Raises `Refused` if anything is mounted below an open folder, but for the names in `skip`.

    A file can be mounted on a file of its own device: neither device nor `open_folder` shows that.
    Its name cannot be replaced, so a commit could not be finished.
    """
    inside = os.readlink(f"/proc/self/fd/{top}").rstrip("/") + "/"
    for mount in kernel.mount_points():
        if mount.startswith(inside):
            path = os.fsencode(mount[len(inside) :])
            if path.partition(b"/")[0] not in skip:
                raise another_mount(path)


def is_closed(mode: int) -> bool:
    """Whether an owner without privileges can no longer read what has this mode."""
    needed = {Kind.FILE: 0o400, Kind.FOLDER: 0o500}.get(kind_of(mode), 0)
    return os.geteuid() != 0 and mode & needed != needed


def closed(path: bytes) -> Refused:
    return Refused(
        "WORKSPACE_CLOSED",
        f"{shown(path)} cannot be read by this user.",
        remedy="Give its owner the right to read it (`chmod u+rX`), or move it out of the project.",
    )


def another_mount(path: bytes) -> Refused:
    return Refused(
        "WORKSPACE_HAS_MOUNTS",
        f"{shown(path)}: something is mounted in the workspace.",
        remedy="Move it out of the workspace, or unmount it.",
    )


def _too_long(path: bytes) -> Refused:
    return Refused(
        "WORK_PATH_TOO_LONG",
        f"{shown(path)[:80]}…: the path is longer than {LONGEST_PATH} bytes.",
        remedy="Linux takes no longer one from a program; use fewer or shorter folders.",
    )


def look(name: bytes, folder: int) -> os.stat_result | None:
    """What is at `name`, or ``None``."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def entry_at(path: bytes, base: int) -> Entry | None:
    """What is at a path below the open folder `base`, read now; ``None`` if nothing is."""
    if not path:
        return entry_of(os.fstat(base), b"")
    try:
        folder = open_folder(parent_of(path), base)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = look(name_of(path), folder)
        if found is None:
            return None
        if kind_of(found.st_mode) is Kind.FOLDER:
            return entry_of(found, b"")
        return entry_of(found, read_digest(name_of(path), folder, found))
    finally:
        os.close(folder)


@contextlib.contextmanager
def opened_up(name: bytes, folder: int, found: os.stat_result) -> Iterator[None]:
    """A tool may have closed its file or folder to an owner who is an ordinary user and has to read
    it here. Its mode is the tool's wish, so it is given back."""
    if not is_closed(found.st_mode):
        yield
        return
    needed = 0o500 if stat.S_ISDIR(found.st_mode) else 0o400
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    path, mode = f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode)
    try:
        os.chmod(path, mode | needed)
        yield
        os.chmod(path, mode)
    finally:
        os.close(handle)


def copy_file(source: int, target: int) -> None:
    """All bytes, leaving holes where the source has them. File systems that can share blocks
    between two files do so."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing but a hole up to the end
        at = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(target, start, os.SEEK_SET)
        left = at - start
        while left:
            sent = _copy_some(source, target, min(left, 1 << 30))
            if sent == 0:
                return  # it shrank meanwhile; a comparison of digests finds it
            left -= sent


def _copy_some(source: int, target: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count)
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
        return os.sendfile(target, source, None, count)
