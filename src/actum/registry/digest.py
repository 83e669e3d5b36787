"""The digest of a tool folder: every byte of it, regular files only.

Each file is read once; the hashed bytes are parsed afterwards (`Snapshot.documents`). Links,
sockets, devices and pipes inside a tool folder are refused: they would bring in bytes that the
digest does not cover.

The digest is the SHA-256 of the canonical JSON object that maps each file's relative path to the
SHA-256 of its content, followed by ``+x`` if the file is executable. Empty directories, owners and
times do not count, so a clone has the digest of the original.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.errors import Refused
from actum.value import field, value

MAX_FILES = 2_000
MAX_BYTES = 64 * 1_048_576
_MAX_DEPTH = 32
_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>; the clock of file times

#: path, device, inode, mode, size, mtime_ns, ctime_ns
Stamp = tuple[str, int, int, int, int, int, int]


@value
class Snapshot:
    """The contents of one tool folder, read once."""

    folder: Path
    files: Mapping[str, str]  #: relative path -> SHA-256, with ``+x`` if executable
    documents: Mapping[str, bytes] = field(repr=False)  #: `tool.yaml` and `adapters/*.yaml`

    digest: str  #: of `files`


def folder_digest(folder: Path) -> str:
    return read_folder(folder).digest


def read_folder(folder: Path) -> Snapshot:
    """Read and hash everything below `folder`, in a stable order."""
    files: dict[str, str] = {}
    documents: dict[str, bytes] = {}
    for path, status in sorted(_walk(folder)):
        if stat.S_ISDIR(status.st_mode):
            continue
        content = _read(folder, path, status)
        files[path] = sha256_bytes(content) + ("+x" if status.st_mode & 0o111 else "")
        if is_document(path):
            documents[path] = content
    digest = sha256_json(files)
    return Snapshot(folder=folder, files=files, documents=documents, digest=digest)


def is_document(path: str) -> bool:
    parent, _, name = path.rpartition("/")
    return path == "tool.yaml" or (parent == "adapters" and name.endswith(".yaml"))


def changed_files(approved: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """The differences in words: ``tool.yaml (edited)``, ``new.sh (added)`` …"""
    return tuple(
        f"{path} ({_difference(approved.get(path), found.get(path))})"
        for path in sorted({*approved, *found})
        if approved.get(path) != found.get(path)
    )


def _difference(approved: str | None, found: str | None) -> str:
    if approved is None:
        return "added"
    if found is None:
        return "removed"
    if approved.removesuffix("+x") == found.removesuffix("+x"):
        return "now executable" if found.endswith("+x") else "no longer executable"
    return "edited"


def file_clock_ns() -> int:
    """The current time on the clock of file times: no later change can have an earlier ctime."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


class SnapshotCache:
    """Snapshots, cached by the stat of everything in the folder: no hashing until an edit.

    A folder's own times change when a name in it is added or removed (POSIX), so checking the
    known names finds new ones too. A file changed in the same clock tick as its stat could have
    unchanged times: such a snapshot is used but not cached. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._cached: dict[Path, tuple[tuple[Stamp, ...], Snapshot]] = {}

    def read(self, folder: Path) -> Snapshot:
        cached = self._cached.get(folder)
        if cached is not None and hold(cached[0]):
            return cached[1]
        # Read the clock first: a later change is stamped no earlier than this.
        tick = file_clock_ns()
        stamps = _stamps(folder)
        snapshot = read_folder(folder)
        if all(stamp[-1] < tick for stamp in stamps) and _stamps(folder) == stamps:
            self._cached[folder] = (stamps, snapshot)
        return snapshot

    def stamps(self, snapshot: Snapshot) -> tuple[Stamp, ...] | None:
        """Stamps by which `hold` can tell whether `read` would return this snapshot; ``None`` if it
        would not."""
        cached = self._cached.get(snapshot.folder)
        return cached[0] if cached is not None and cached[1] is snapshot else None


def _stamps(folder: Path) -> tuple[Stamp, ...]:
    """Stamps of the folder and of everything in it, by absolute path."""
    return tuple(
        (
            f"{folder}/{path}" if path else str(folder),
            s.st_dev,
            s.st_ino,
            s.st_mode,
            s.st_size,
            s.st_mtime_ns,
            s.st_ctime_ns,
        )
        for path, s in sorted(_walk(folder))
    )


def hold(stamps: tuple[Stamp, ...]) -> bool:
    """Whether every stamp is unchanged."""
    lstat = os.lstat
    try:
        for path, device, inode, mode, size, mtime_ns, ctime_ns in stamps:
            s = lstat(path)
            if (
                s.st_ctime_ns != ctime_ns
                or s.st_ino != inode
                or s.st_mode != mode
                or s.st_mtime_ns != mtime_ns
                or s.st_size != size
                or s.st_dev != device
            ):
                return False
    except OSError:
        return False
    return True


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The folder itself (as the empty path), and everything in it."""
    top = _status(str(folder))
    if top is None or not stat.S_ISDIR(top.st_mode):
        raise _unfit(folder, "", "it is a link or not a directory")
    yield "", top
    count = size = 0
    pending = [("", 0)]
    while pending:
        below, depth = pending.pop()
        for path, status in _listed(folder, below):
            count += 1
            if count > MAX_FILES:
                raise _unfit(folder, "", f"it has more than {MAX_FILES} files and folders")
            if not path.isprintable():
                raise _unfit(folder, ascii(path), "its name is not printable text")
            if stat.S_ISDIR(status.st_mode):
                if depth == _MAX_DEPTH:
                    raise _unfit(folder, path, f"it is more than {_MAX_DEPTH} folders deep")
                pending.append((path, depth + 1))
            elif not stat.S_ISREG(status.st_mode):
                raise _unfit(folder, path, "it is a link or special file; put a plain file there")
            else:
                size += status.st_size
            if size > MAX_BYTES:
                raise _unfit(folder, "", f"it has more than {MAX_BYTES} bytes")
            yield path, status


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None  # missing or not accessible


def _listed(folder: Path, below: str) -> list[tuple[str, os.stat_result]]:
    try:
        with os.scandir(f"{folder}/{below}" if below else str(folder)) as entries:
            return [
                (
                    f"{below}/{entry.name}" if below else entry.name,
                    entry.stat(follow_symlinks=False),
                )
                for entry in itertools.islice(entries, MAX_FILES + 1)
            ]
    except OSError as error:
        raise _unfit(folder, below, error.strerror or str(error)) from error


def _read(folder: Path, path: str, seen: os.stat_result) -> bytes:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / path, flags)
    except OSError as error:
        raise _unfit(folder, path, error.strerror or str(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        # Between the listing and here the file may have been swapped or have grown.
        if (status.st_dev, status.st_ino, status.st_mode) != (
            seen.st_dev,
            seen.st_ino,
            seen.st_mode,
        ):
            raise _unfit(folder, path, "it was replaced while it was being read")
        content = file.read(seen.st_size + 1)
    if len(content) != seen.st_size:
        raise _unfit(folder, path, "it changed size while it was being read")
    return content


def _unfit(folder: Path, path: str, why: str) -> Refused:
    return Refused(
        "TOOL_FOLDER_UNFIT",
        f"The tool folder {folder} cannot be digested: {path + ': ' if path else ''}{why}.",
        remedy="A tool folder holds regular files and folders only; remove anything else.",
    )
