"""Atomic file writes: a file is complete or missing.

A file is written without a name (O_TMPFILE) and linked when it is complete, so a killed process
leaves nothing. Where the file system cannot do that, or an existing file is to be replaced in one
step, it has a temporary name before the rename.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def write_whole(path: Path, content: bytes, *, synced: bool) -> None:
    """Create or replace `path`, mode 0600. `synced`: fsync before it gets its name."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            _write_named(folder, path.name, content, synced=synced)
            return
        try:
            _fill(descriptor, content, synced=synced)
            _name(descriptor, folder, path.name)
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)


def link_whole(folder: int, name: str, content: bytes, *, replace: bool) -> None:
    """Create `name` in an open folder, with the mode of the umask. Nothing that has this name is
    followed; without `replace`, `FileExistsError` is raised for it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    passing = _passing_name(name)
    descriptor = os.open(passing, flags, 0o666, dir_fd=folder)
    try:
        try:
            _fill(descriptor, content, synced=False)
        finally:
            os.close(descriptor)
        if replace:
            os.replace(passing, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        os.link(passing, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except BaseException:
        os.unlink(passing, dir_fd=folder)
        raise
    os.unlink(passing, dir_fd=folder)


def _fill(descriptor: int, content: bytes, *, synced: bool) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    if synced:
        os.fsync(descriptor)


def _name(descriptor: int, folder: int, name: str) -> None:
    unnamed = f"/proc/self/fd/{descriptor}"
    try:
        # With dir_fd given, Python calls linkat(), which alone follows the link in /proc.
        os.link(unnamed, name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        passing = _passing_name(name)
        os.link(unnamed, passing, dst_dir_fd=folder, follow_symlinks=True)
        os.replace(passing, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write_named(folder: int, name: str, content: bytes, *, synced: bool) -> None:
    passing = _passing_name(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(passing, flags, 0o600, dir_fd=folder)
    try:
        _fill(descriptor, content, synced=synced)
        os.replace(passing, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(passing, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _passing_name(name: str) -> str:
    return f".{name}.{os.urandom(8).hex()}.new"
