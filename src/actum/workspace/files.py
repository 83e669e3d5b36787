"""Names on a disk: the kind of each, and the digest of its content.

Every open is relative to a folder that is open already, never follows a link, and never blocks (a
pipe in the place of a file).
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

#: Links have no permissions of their own; Linux shows 0777.
_LINK_MODE = 0o777
_CHUNK = 1 << 20
#: Errors of `copy_file_range` after which `sendfile` works.
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
    """The digest of a file's bytes or a link's target; of no bytes for any other kind."""
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
    """Open a folder below `anchor`, through no link and across no mount; the caller closes it.

    Raises `Refused` for a path longer than the kernel accepts, and for a mount on the way.
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
    """Raises `Refused` if there is a mount below an open folder, except under the names in `skip`.

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
    """Whether this mode keeps an unprivileged owner from reading."""
    needed = {Kind.FILE: 0o400, Kind.FOLDER: 0o500}.get(kind_of(mode), 0)
    return os.geteuid() != 0 and mode & needed != needed


def closed(path: bytes) -> Refused:
    return Refused(
        "WORKSPACE_CLOSED",
        f"{shown(path)} cannot be read by this user.",
        remedy="Give its owner read permission (`chmod u+rX`), or move it out of the project.",
    )


def another_mount(path: bytes) -> Refused:
    return Refused(
        "WORKSPACE_HAS_MOUNTS",
        f"{shown(path)}: this is a mount point in the workspace.",
        remedy="Move it out of the workspace, or unmount it.",
    )


def _too_long(path: bytes) -> Refused:
    return Refused(
        "WORK_PATH_TOO_LONG",
        f"{shown(path)[:80]}…: the path is longer than {LONGEST_PATH} bytes.",
        remedy="Linux accepts no longer path in a system call. Use fewer or shorter folder names.",
    )


def look(name: bytes, folder: int) -> os.stat_result | None:
    """Stat `name`; ``None`` if it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def entry_at(path: bytes, base: int) -> Entry | None:
    """The entry at a path below the open folder `base`, read now; ``None`` if there is none."""
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
    """Add read permission for the owner, and restore the mode afterwards. A tool may have removed
    it, and an ordinary user has to read the file or folder here."""
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
    """Copy all bytes, and leave holes where the source has them. File systems that can share
    blocks between two files do so."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # only a hole is left
        at = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(target, start, os.SEEK_SET)
        left = at - start
        while left:
            sent = _copy_some(source, target, min(left, 1 << 30))
            if sent == 0:
                return  # it shrank meanwhile; the digests will differ
            left -= sent


def _copy_some(source: int, target: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count)
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
        return os.sendfile(target, source, None, count)
