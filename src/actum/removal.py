"""The only code that removes a folder together with its contents.

A mistake here can destroy a project, so four independent rules must all fail before data is lost:

* **Marker.** Only a folder that holds `MARKER`, written by `make`, is removed. Markers exist only
  where no tool can write: inside `.actum/`, or one level above a throwaway project.
* **No mounts.** A tree that holds a mount is refused as a whole, before the first name is
  removed. A mount's contents belong elsewhere.
* **Descriptors.** Every folder is opened by `openat2` below its parent, through no link and across
  no mount (RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV).
* **Marker last.** An interrupted removal leaves the marker, so that the next removal finishes.

Proved by tests/security/filesystem/test_removal.py; that no other module removes a tree is proved
by tests/unit/test_one_remover.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from actum import kernel
from actum.errors import Fault

MARKER = ".actum-removable"
_TEXT = b"Actum made this folder and removes it with all that is in it.\n"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


class RemovalRefused(Fault):
    """The folder has no marker of Actum or holds a mount. It was not removed."""

    code = "REMOVAL_REFUSED"


def make(folder: Path) -> None:
    """Make a folder that `remove` may remove, or mark an existing empty one.

    Raises `FileExistsError` for a folder that has contents and no marker.
    """
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not is_removable(folder):
            if os.listdir(folder):
                raise
            mark(folder)
        return
    try:
        mark(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(folder / MARKER)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        raise


def mark(folder: Path) -> None:
    """Allow `remove` to remove a folder. For callers that built its whole path themselves."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(folder / MARKER, flags, 0o600), "wb") as file:
        file.write(_TEXT)


def is_removable(folder: Path) -> bool:
    """Whether a folder holds the marker, written by this user."""
    try:
        descriptor = os.open(folder, _FOLDER | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return _is_marked(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> bool:
    """Remove a marked folder with its contents. Returns whether it is gone.

    Names that cannot be removed (a permission, a busy name) stay, and so does the marker: the
    next removal continues. Raises `RemovalRefused` for a folder that has no marker and is not
    empty, and for a tree that holds a mount.
    """
    try:
        parent = os.open(folder.parent, _FOLDER | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        try:
            top = _opened(parent, folder.name)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise _refused(folder, f"it cannot be opened in place: {error.strerror}") from error
        try:
            if _is_marked(top):
                _require_no_mounts(top, folder)
                _empty(top)
                if os.listdir(top) == [MARKER]:
                    with contextlib.suppress(FileNotFoundError):  # removed by another process
                        os.unlink(MARKER, dir_fd=top)
            elif os.listdir(top):
                raise _refused(folder, f"it has no {MARKER}")
        finally:
            os.close(top)
        with contextlib.suppress(OSError):
            os.rmdir(folder.name, dir_fd=parent)
            return True
        return False
    finally:
        os.close(parent)


def remove_part(folder: Path, name: str) -> None:
    """Remove one name in a marked folder, with its contents. The same rules hold."""
    top = os.open(folder, _FOLDER | os.O_CLOEXEC)
    try:
        if not _is_marked(top):
            raise _refused(folder / name, f"{folder} has no {MARKER}")
        if name == MARKER or "/" in name or name in ("", ".", ".."):
            raise _refused(folder / name, "it is not a name in that folder")
        _require_no_mounts(top, folder)
        _remove_names(top, [name])
    finally:
        os.close(top)


def _empty(top: int) -> None:
    _remove_names(top, [name for name in os.listdir(top) if name != MARKER])


def _remove_names(top: int, waiting: list[str]) -> None:
    """Remove these names in `top`. A name that cannot be removed stays.

    A nested folder is moved up to `top` before it is emptied. So nothing here recurses
    and no path grows: a tool can make a tree deeper than any stack and longer than PATH_MAX.
    """
    prefix, moved = os.urandom(8).hex(), 0
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            folder = _opened_for_removal(top, name)
            if folder is None:
                os.unlink(name, dir_fd=top)
                continue
            try:
                for inner in os.listdir(folder):
                    with contextlib.suppress(OSError):
                        if not _is_folder(folder, inner):
                            os.unlink(inner, dir_fd=folder)
                            continue
                        moved += 1
                        target = f"{prefix}-{moved}"
                        _open_up(folder, inner)  # a folder without write permission cannot move
                        os.rename(inner, target, src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(target)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _opened_for_removal(parent: int, name: str) -> int | None:
    """Open a folder, made readable and writable for its owner; ``None`` for any other name."""
    if not _is_folder(parent, name):
        return None
    _open_up(parent, name)
    return _opened(parent, name)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open_up(parent: int, name: str) -> None:
    # By descriptor: chmod by name would follow a link that was put there since.
    handle = kernel.open_within(parent, name, _HANDLE)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)


def _opened(parent: int, name: str) -> int:
    return kernel.open_within(parent, name, _FOLDER)


def _is_marked(folder: int) -> bool:
    try:
        descriptor = os.open(
            MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
            return False
        raise
    try:
        found = os.fstat(descriptor)
        # The marker's text is not checked: a crash may come between the file's name and its bytes.
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    finally:
        os.close(descriptor)


def _require_no_mounts(top: int, folder: Path) -> None:
    path = os.readlink(f"/proc/self/fd/{top}")
    for mount in kernel.mount_points():
        if mount == path or mount.startswith(f"{path}/"):
            raise _refused(folder, f"something is mounted at {mount}")


def _refused(folder: Path, why: str) -> RemovalRefused:
    return RemovalRefused(
        f"{folder} was not removed: {why}.",
        remedy="Check its contents; remove it by hand if it is not needed.",
    )
