"""Copy files, links and folders from one open folder to another."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from actum.value import value
from actum.workspace import files
from actum.workspace.tree import Entry, content_digest, joined, name_of

#: A file up to this size is read at once, and its digest needs no second read.
_READ_WHOLE_BYTES = 262_144
#: Attributes that belong to a file's content or permissions. Those of an overlay do not.
_ATTRIBUTES = ("user.", "system.posix_acl_")
_OVERLAY_MARKS = "user.overlay."

COPY_LIST = "copied.json"  #: the name of the list of copied entries
Stamp = tuple[int, int, int, int, int]  #: inode, mode, size, mtime and ctime


@value
class Bounds:
    """The limit on a folder that is copied for an execution."""

    mib: int = 2_048
    names: int = 200_000


@value(kw_only=False)
class Known:
    """One entry of a copy as it was made."""

    entry: Entry
    stamp: Stamp | None  #: ``None`` for folders, and for entries without content


def own(look: os.stat_result) -> tuple[int, int]:
    return look.st_uid, look.st_gid


def stamp_of(look: os.stat_result) -> Stamp:
    return look.st_ino, look.st_mode, look.st_size, look.st_mtime_ns, look.st_ctime_ns


def copy_tree(
    source: int,
    target: int,
    left_out: frozenset[bytes] = frozenset(),
    owner: Callable[[os.stat_result], tuple[int, int]] = own,
    *,
    hollow: frozenset[bytes] = frozenset(),
    noted: dict[bytes, Known] | None = None,
    hard_links: bool = False,
    linked: Callable[[os.stat_result], bool] | None = None,
) -> int:
    """Copy files, links and folders of one open folder into another, with modes, times and owners.

    Paths in `left_out` are not copied. Paths in `hollow` become an empty file or folder. All other
    entries are added to `noted`. With `hard_links`, hard links stay hard links. A name for which
    `linked` says so gets a second name instead of a copy, where that is possible. Returns the size
    of the files, holes included.
    """
    copying = _Copying(target, owner, noted, hard_links=hard_links)
    folders = [b""]
    for path in folders:
        here, there = files.open_folder(path, source), files.open_folder(path, target)
        try:
            for name in map(os.fsencode, os.listdir(here)):
                where = joined(path, name)
                look = None if where in left_out else files.look(name, here)
                if look is None:
                    continue
                if where in hollow:
                    _make_hollow(name, look, there)
                elif stat.S_ISDIR(look.st_mode):
                    os.mkdir(name, 0o700, dir_fd=there)
                    folders.append(where)
                elif linked is None or not linked(look) or not _linked(name, here, name, there):
                    copying.take(where, look, here, there)
        finally:
            os.close(here)
            os.close(there)
    # Deepest first: a name that is made changes the time of its folder.
    for path in reversed(folders):
        here, there = files.open_folder(path, source), files.open_folder(path, target)
        try:
            look = os.fstat(here)
            dress(there, look, owner(look), here)
            if noted is not None:
                noted[path] = Known(files.entry_of(look, b""), None)
        finally:
            os.close(here)
            os.close(there)
    return copying.held


class _Copying:
    """The state of one `copy_tree`."""

    def __init__(
        self,
        target: int,
        owner: Callable[[os.stat_result], tuple[int, int]],
        noted: dict[bytes, Known] | None,
        *,
        hard_links: bool,
    ) -> None:
        self.held = 0
        self._hard_links = hard_links
        self._target, self._owner, self._noted = target, owner, noted
        #: Of a file with several names: device and inode -> paths in the copy.
        self._names: dict[tuple[int, int], list[bytes]] = {}

    def take(self, path: bytes, look: os.stat_result, here: int, there: int) -> None:
        """Copy one name that is no folder, from the folder `here` to the same one in the copy."""
        name, digest = name_of(path), b""
        shared = self._hard_links and look.st_nlink > 1 and stat.S_ISREG(look.st_mode)
        names = self._names.setdefault((look.st_dev, look.st_ino), []) if shared else []
        self.held += look.st_size
        try:
            if names and _linked(names[0], self._target, name, there):
                digest = self._noted[names[0]].entry.digest if self._noted is not None else b""
            else:
                names.clear()  # the file system has no hard links, or the limit is reached
                wanted = self._noted is not None
                digest = copy_name(
                    name, look, here, name, there, self._owner(look), digested=wanted
                )
        except PermissionError as error:
            raise files.closed(path) from error
        names.append(path)
        if self._noted is not None:
            made = files.look(name, there)
            stamp = None if made is None else stamp_of(made)
            entry = files.entry_of(look, digest)
            for each in names:  # a new link changes the ctime of its file
                self._noted[each] = Known(entry, stamp)


def _linked(first: bytes, top: int, name: bytes, there: int) -> bool:
    try:
        os.link(first, name, src_dir_fd=top, dst_dir_fd=there, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV):
            return False
        raise
    return True


def _make_hollow(name: bytes, look: os.stat_result, there: int) -> None:
    """Make a mount point for a path that is covered inside the sandbox."""
    if stat.S_ISDIR(look.st_mode):
        os.mkdir(name, 0o700, dir_fd=there)
    else:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=there))


def copy_name(
    name: bytes,
    look: os.stat_result,
    here: int,
    new_name: bytes,
    there: int,
    owner: tuple[int, int] | None = None,
    *,
    digested: bool = False,
) -> bytes:
    """Copy one file or link. Other kinds are skipped.

    Returns the digest of the content if `digested`.
    """
    owner = owner or own(look)
    if stat.S_ISLNK(look.st_mode):
        aim = os.fsencode(os.readlink(name, dir_fd=here))
        os.symlink(aim, new_name, dir_fd=there)
        if os.geteuid() == 0:
            os.chown(new_name, *owner, dir_fd=there, follow_symlinks=False)
        return content_digest(aim) if digested else b""
    if not stat.S_ISREG(look.st_mode):
        return content_digest(b"") if digested else b""
    source = os.open(name, files.FILE_FLAGS, dir_fd=here)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(new_name, flags, 0o600, dir_fd=there)
        try:
            digest = _copy_content(source, target, look, digested=digested)
            dress(target, look, owner, source)
        finally:
            os.close(target)
    finally:
        os.close(source)
    return digest


def _copy_content(source: int, target: int, look: os.stat_result, *, digested: bool) -> bytes:
    has_holes = look.st_blocks * 512 < look.st_size
    if look.st_size <= _READ_WHOLE_BYTES and not has_holes:
        content = _read(source)
        written = 0
        while written < len(content):
            written += os.write(target, content[written:])
        return content_digest(content) if digested else b""
    files.copy_file(source, target)
    if not digested:
        return b""
    # The digest of the copy, because the tool sees the copy: the source may change meanwhile.
    os.lseek(target, 0, os.SEEK_SET)
    return files.digest_of(target)


def _read(source: int) -> bytes:
    content = os.read(source, _READ_WHOLE_BYTES)
    while len(content) < _READ_WHOLE_BYTES and (more := os.read(source, _READ_WHOLE_BYTES)):
        content += more  # some file systems return short reads
    return content


def dress(target: int, look: os.stat_result, owner: tuple[int, int], source: int = -1) -> None:
    """Set owner, permissions (never set-user-id or set-group-id) and mtime, and copy the attributes
    of the open `source` where the file system supports them."""
    if os.geteuid() == 0:
        os.fchown(target, *owner)
    os.fchmod(target, look.st_mode & 0o777)
    if source >= 0:
        _copy_attributes(source, target)
    os.utime(target, ns=(look.st_atime_ns, look.st_mtime_ns))


def _copy_attributes(source: int, target: int) -> None:
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return
    for name in names:
        if name.startswith(_ATTRIBUTES) and not name.startswith(_OVERLAY_MARKS):
            try:
                os.setxattr(target, name, os.getxattr(source, name))
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.ENODATA):
                    raise
