"""Copies files out of a sandbox without following anything that the tool planted there.

The tool chose every name, type and size in these directories, and may still be changing them. So
the kernel walks each path (`open_beneath`: no symlink, no `..`, no way out), checks and reads use
an open descriptor, and count, depth, bytes and time are bounded. A file that is not collected is
named with reason and size: evidence is never silently partial.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import urllib.parse
from collections.abc import Iterable

from actum import kernel
from actum.capture.model import Collected, NotCollected
from actum.contract.canonical import blake3_bytes, sha256_bytes

OUTPUT_FILE = "output_file"
ARTIFACT = "artifact"

MISSING = "missing"
SYMLINK = "symbolic link"
FIFO = "FIFO"
SOCKET_OR_DEVICE = "socket or device"
DIRECTORY = "directory"

#: Reasons that lose no content: such an entry has none of its own.
WITHOUT_CONTENT = frozenset({SYMLINK, FIFO, SOCKET_OR_DEVICE})

_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READ_BYTES = 1 << 20

# Names are sorted before the first is collected, so all are listed first. This bounds the list.
_LISTED_PER_FILE = 16

# Names cost a tool nothing, and each is recorded permanently, several times.
_PATH_BYTES = 1_024

Collection = tuple[tuple[Collected, ...], tuple[NotCollected, ...]]


class _NotTaken(Exception):
    def __init__(self, reason: str, size: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.size = size


class _TooMany(Exception):
    pass


def collect_files(
    root_fd: int, relative_paths: Iterable[str | bytes], kind: str, limit_bytes: int
) -> Collection:
    """Collect the named files below `root_fd`, in byte order of their paths."""
    paths = sorted({os.fsencode(path) for path in relative_paths})
    return _take_all(root_fd, paths, kind, limit_bytes, deadline=None)


def collect_tree(
    root_fd: int,
    kind: str,
    *,
    limit_bytes: int,
    max_files: int = 256,
    max_depth: int = 16,
    deadline: float,
) -> Collection:
    """Collect every regular file below `root_fd`, which is the root of its own file system;
    `deadline` is a value of `time.monotonic`."""
    if _holds_nothing(root_fd):
        return (), ()
    listing = _Listing(
        root_fd,
        kind,
        max_entries=max_files * _LISTED_PER_FILE,
        max_depth=max_depth,
        deadline=deadline,
    )
    listing.run()
    files = sorted(listing.files)
    taken, not_taken = _take_all(root_fd, files[:max_files], kind, limit_bytes, deadline=deadline)
    beyond = tuple(
        NotCollected(path=shown(path), kind=kind, reason=f"over the count of {max_files} files")
        for path in files[max_files:]
    )
    return taken, tuple(sorted((*listing.refused, *not_taken, *beyond), key=lambda it: it.path))


def _holds_nothing(root_fd: int) -> bool:
    """Whether the file system counts its files and holds only its root."""
    found = os.fstatvfs(root_fd)
    return found.f_files - found.f_ffree == 1


def shown(path: bytes) -> str:
    """A path as text that is safe to print, distinct for distinct bytes.

    Bytes that are not UTF-8 or not printable (line feeds, escape sequences, direction marks), and
    the percent sign itself, are percent-encoded.
    """
    text = os.fsdecode(path)
    if text.isprintable() and "%" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "%"
        else urllib.parse.quote(os.fsencode(character), safe="")
        for character in text
    )


def _take_all(
    root_fd: int, paths: list[bytes], kind: str, limit_bytes: int, *, deadline: float | None
) -> Collection:
    taken: list[Collected] = []
    not_taken: list[NotCollected] = []
    left = limit_bytes
    for path in paths:
        try:
            _still_in_time(deadline)
            content = _read(root_fd, path, kind, left, limit_bytes)
        except (_NotTaken, OSError) as why:
            not_taken.append(_not_collected(path, kind, why))
            continue
        left -= len(content)
        taken.append(
            Collected(
                name=shown(os.path.basename(path)),
                path=shown(path),
                kind=kind,
                content=content,
                sha256=sha256_bytes(content),
                blake3=blake3_bytes(content),
            )
        )
    return tuple(taken), tuple(not_taken)


def _still_in_time(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise _NotTaken("not reached in time")


def _read(root_fd: int, path: bytes, kind: str, left: int, limit_bytes: int) -> bytes:
    fd = _open(root_fd, path, _OPEN_FILE)
    try:
        # Check after opening: the name may already refer to another file, the descriptor cannot.
        status = os.fstat(fd)
        if reason := _not_regular(status.st_mode):
            raise _NotTaken(reason)
        if kind == ARTIFACT and status.st_nlink > 1:
            # Another link elsewhere on the mount: this may not be the tool's own file.
            raise _NotTaken("hard-linked elsewhere", status.st_size)
        # The logical size: a sparse file costs the tool nothing, but reading it costs all of it.
        if status.st_size > left:
            raise _NotTaken(f"over the total of {limit_bytes} bytes", status.st_size)
        content = _read_at_most(fd, status.st_size + 1)
        if len(content) != status.st_size:
            raise _NotTaken("changed while it was read", status.st_size)
        return content
    finally:
        os.close(fd)


def _read_at_most(fd: int, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        chunk = os.read(fd, min(_READ_BYTES, count - len(content)))
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _not_regular(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISDIR(mode):
        return DIRECTORY
    return FIFO if stat.S_ISFIFO(mode) else SOCKET_OR_DEVICE


def _open(root_fd: int, path: bytes, flags: int) -> int:
    if b"\0" in path:
        raise _NotTaken(MISSING)  # the kernel would stop at the NUL: another file
    if b"/" not in path and path != b"..":
        # One component that is not `..`: `O_NOFOLLOW`, which both flags have, is sufficient.
        return os.open(path, flags, dir_fd=root_fd)
    return kernel.open_beneath(root_fd, path, flags)


def _not_collected(path: bytes, kind: str, why: _NotTaken | OSError) -> NotCollected:
    if isinstance(why, OSError):
        why = _NotTaken(_reason(why))
    return NotCollected(path=shown(path), kind=kind, reason=why.reason, size=why.size)


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return MISSING
        case errno.ELOOP:
            return SYMLINK
        case errno.EXDEV:
            return "outside its directory"
        case errno.ENXIO:
            return SOCKET_OR_DEVICE
        case number:
            return f"not readable: {os.strerror(number or 0)}"


class _Listing:
    """Names of the files below a directory, within bounds; opens only directories."""

    def __init__(
        self, root_fd: int, kind: str, *, max_entries: int, max_depth: int, deadline: float
    ) -> None:
        self.files: list[bytes] = []
        self.refused: list[NotCollected] = []
        self._root_fd = root_fd
        self._kind = kind
        self._max_entries = max_entries
        self._max_depth = max_depth
        self._deadline = deadline
        self._seen = 0

    def run(self) -> None:
        waiting: list[tuple[bytes, int]] = [(b".", 0)]
        while waiting:
            directory, depth = waiting.pop()
            try:
                below = self._list(directory, depth)
            except _TooMany:
                # The order of entries is up to the file system: collect none, and report it.
                self.files = []
                why = _NotTaken(f"more than {self._max_entries} entries")
                self.refused.append(_not_collected(b".", self._kind, why))
                return
            except (_NotTaken, OSError) as why:
                self.refused.append(_not_collected(directory, self._kind, why))
                continue
            waiting += [(path, depth + 1) for path in below]

    def _list(self, directory: bytes, depth: int) -> list[bytes]:
        """Record the entries of one directory. Returns its subdirectories."""
        if depth > self._max_depth:
            raise _NotTaken(f"deeper than {self._max_depth} directories")
        if len(directory) > _PATH_BYTES:
            raise _NotTaken(f"its path is longer than {_PATH_BYTES} bytes")
        fd = _open(self._root_fd, directory, _OPEN_DIRECTORY)
        below: list[bytes] = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._seen += 1
                    if self._seen > self._max_entries:
                        raise _TooMany
                    _still_in_time(self._deadline)
                    name = os.fsencode(entry.name)
                    path = name if directory == b"." else directory + b"/" + name
                    if entry.is_dir(follow_symlinks=False):
                        below.append(path)
                    else:
                        self.files.append(path)
        finally:
            os.close(fd)
        return below
