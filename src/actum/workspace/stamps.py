"""The kernel's metadata of every name in a folder, as bytes that are compared as a whole.

A stamp holds inode, mode, owner, size, mtime and ctime. A file's digest stays valid while its stamp
is the same, if the stamp was old enough when it was taken: a file system uses the time of the last
tick, so a file that changed within one tick may change again without a new stamp (git calls such
an entry racy). The stamps of a folder with a thousand names take a thousand system calls and a few
objects.
"""

from __future__ import annotations

import os
import stat
import struct

from actum import kernel
from actum.value import value
from actum.workspace import files
from actum.workspace.packed import STAMP_BYTES
from actum.workspace.tree import Kind

_TICK_NS = 20_000_000
#: Words of `struct stat`: inode; mode and user; group; size; mtime and ctime, in s and ns.
_WORDS = (1, 3, 4, 6, 11, 12, 13, 14)
_DEVICE_WORD = 0
_TIMES = struct.Struct("32xqQqQ")
#: Halves of words in a stamp.
_SIZE_WORD = 3
_HALVES, _MODE_HALF, _USER_HALF, _GROUP_HALF = 16, 2, 3, 4


@value(kw_only=False)
class Stamped:
    """All names of one folder, sorted, with their stamps."""

    names: list[bytes]
    stamps: bytes
    alien: bytes | None  #: a name on another device
    strangers: int  #: names with another owner than the top folder

    @property
    def folders(self) -> list[bytes]:
        if not self.names:
            return []
        modes = memoryview(self.stamps).cast("I")[_MODE_HALF::_HALVES]
        if not any(map(stat.S_ISDIR, set(modes))):
            return []  # most folders: few distinct modes
        return [name for name, mode in zip(self.names, modes, strict=True) if stat.S_ISDIR(mode)]

    @property
    def file_bytes(self) -> int:
        """The size of all files, holes included."""
        if not self.names:
            return 0
        modes = memoryview(self.stamps).cast("I")[_MODE_HALF::_HALVES]
        sizes = memoryview(self.stamps).cast("Q")[_SIZE_WORD :: len(_WORDS)]
        return sum(size for size, mode in zip(sizes, modes, strict=True) if stat.S_ISREG(mode))

    def kind(self, number: int) -> Kind:
        return files.kind_of(memoryview(self.stamps).cast("I")[number * _HALVES + _MODE_HALF])


class Looker:
    """Reads the folders of one tree."""

    def __init__(self, top: os.stat_result) -> None:
        self._stats = kernel.Stats()
        self._device = top.st_dev.to_bytes(8, "little")
        self._user = top.st_uid.to_bytes(4, "little")
        self._group = top.st_gid.to_bytes(4, "little")

    def look(self, folder: int, skip: frozenset[bytes]) -> Stamped:
        """The names in an open folder, except those in `skip`."""
        names = os.fsencode("\0".join(os.listdir(folder))).split(b"\0")
        names = sorted(name for name in names if name not in skip) if skip else sorted(names)
        if names[:1] == [b""]:
            names = []
        while True:
            stats = self._stats.look(folder, names)
            if stats is not None:
                return self._stamped(names, stats)
            # A name was removed between two calls: read again without it.
            names = [name for name in names if files.look(name, folder) is not None]

    def _stamped(self, names: list[bytes], stats: memoryview) -> Stamped:
        if not names:
            return Stamped([], b"", None, 0)
        stamps = bytearray(len(names) * STAMP_BYTES)
        words = memoryview(stamps).cast("Q")
        for number, word in enumerate(_WORDS):
            words[number :: len(_WORDS)] = stats[word :: kernel.STAT_WORDS]
        alien = None
        devices = stats[_DEVICE_WORD :: kernel.STAT_WORDS].tobytes()
        if devices != self._device * len(names):
            alien = next(
                name
                for number, name in enumerate(names)
                if devices[number * 8 : number * 8 + 8] != self._device
            )
        halves = memoryview(stamps).cast("I")
        users = halves[_USER_HALF::_HALVES].tobytes()
        groups = halves[_GROUP_HALF::_HALVES].tobytes()
        strangers = 0
        if users != self._user * len(names) or groups != self._group * len(names):
            strangers = sum(
                users[at : at + 4] != self._user or groups[at : at + 4] != self._group
                for at in range(0, len(users), 4)
            )
        return Stamped(names, bytes(stamps), alien, strangers)


def proves(stamp: bytes, seen_ns: int) -> bool:
    """Whether a stamp taken at that time will differ if the file changes."""
    mtime_s, mtime_ns, ctime_s, ctime_ns = _TIMES.unpack(stamp)
    newest: int = max(mtime_s * 1_000_000_000 + mtime_ns, ctime_s * 1_000_000_000 + ctime_ns)
    return newest < seen_ns - _TICK_NS
