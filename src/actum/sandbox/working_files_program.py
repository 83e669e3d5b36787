"""Finds what a snippet wrote in its working directory, inside a sandbox. Used by
`snippet_program.py` and `session_program.py`.

Only in the working directory that ends with the sandbox, and in no folder that is mounted in it.
Count, size and depth are bounded. What does not fit or cannot be read is listed with its size; it
does not make the snippet fail. Hidden names and `__pycache__` are left out: they are caches and
settings of modules.
"""

from __future__ import annotations

import contextlib
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    LeftOut = list[str | int]  # path, size, reason

FOLDER = "/tmp"
_DEPTH = 12
_ENTRIES = 4_096
_LISTED = 100
_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkingFiles:
    """The files of the working directory, and which of them are known already."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int]] = {}
        self.left_out: list[LeftOut] = []

    def know(self, path: str) -> None:
        """Regard `path` as unchanged until its next change."""
        found = os.stat(path, follow_symlinks=False)
        before = found.st_mtime_ns
        # The clock of file times is coarse: another write could have the same time. Now it cannot.
        with contextlib.suppress(OSError):  # a file that the snippet made read-only
            os.utime(path, ns=(found.st_atime_ns, before - 1), follow_symlinks=False)
            before -= 1
        self._known[os.path.abspath(path)] = (found.st_ino, found.st_size, before)

    def know_all(self) -> None:
        for path, _size in self._changed():
            self.know(f"{FOLDER}/{path}")

    def take(self, most_bytes: int, most_files: int) -> Iterator[tuple[str, int]]:
        """The changed files that fit, as path in the folder and descriptor, which is closed then.
        `left_out` has the others."""
        self.left_out = []
        _flush_all()
        left = most_bytes
        for path, size in sorted(self._changed()):
            if most_files <= 0 or size > left:
                why = f"over {most_bytes} bytes together" if size > left else "over the count"
                self._leave_out(path, size, why)
                continue
            try:
                file = os.open(f"{FOLDER}/{path}", _OPEN)
            except OSError as error:
                self._leave_out(path, size, error.strerror or "not readable")
                continue
            try:
                yield path, file
            finally:
                os.close(file)
            left -= size
            most_files -= 1
            self.know(f"{FOLDER}/{path}")

    def copy_to(self, target: str, most_bytes: int, most_files: int) -> None:
        """Copy the changed files that fit to the folder `target`."""
        for path, source in self.take(most_bytes, most_files):
            size, copy = os.fstat(source).st_size, f"{target}/{path}"
            try:
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                with open(copy, "wb") as file:
                    file.writelines(read(source, size))
            except OSError as error:  # the snippet used up the space, or took the name
                self._leave_out(path, size, error.strerror or "not copied")
                with contextlib.suppress(OSError):
                    os.unlink(copy)

    def _leave_out(self, path: str, size: int, why: str) -> None:
        if len(self.left_out) < _LISTED:
            self.left_out.append([path, size, why])

    def _changed(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        folders, entries = [("", 0)], 0
        device = os.stat(FOLDER).st_dev
        while folders:
            folder, depth = folders.pop()
            try:
                listing = os.scandir(f"{FOLDER}/{folder}")
            except OSError as error:  # closed by the snippet, or removed meanwhile
                self._leave_out(folder, 0, error.strerror or "not readable")
                continue
            with listing:
                for entry in listing:
                    entries += 1
                    if entries > _ENTRIES:
                        self._leave_out(folder, 0, f"more than {_ENTRIES} entries")
                        return found
                    if not _is_meant(entry.name):
                        continue
                    try:
                        look = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # removed meanwhile, by a process that the snippet left
                    if look.st_dev != device:
                        continue  # a folder of the host that is mounted there
                    path = f"{folder}{entry.name}"
                    if stat.S_ISDIR(look.st_mode):
                        if depth < _DEPTH:
                            folders.append((f"{path}/", depth + 1))
                        else:
                            self._leave_out(path, 0, f"deeper than {_DEPTH} folders")
                    elif stat.S_ISREG(look.st_mode):
                        same = (look.st_ino, look.st_size, look.st_mtime_ns)
                        if self._known.get(f"{FOLDER}/{path}") != same:
                            found.append((path, look.st_size))
        return found


def read(file: int, most: int) -> Iterator[bytes]:
    while most > 0 and (chunk := os.read(file, min(most, _CHUNK))):
        most -= len(chunk)
        yield chunk


def _is_meant(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _flush_all() -> None:
    """Write out files that the snippet has not closed: an interpreter does that when it exits."""
    import gc
    import io

    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    for each in gc.get_objects():
        if type(each) in kinds:
            with contextlib.suppress(ValueError, OSError):  # closed, or it cannot be written
                each.flush()
