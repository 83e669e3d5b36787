"""Names that lie in one folder, not looked at one by one while the folder itself is the same.

Its times change whenever a name in it comes, goes or is replaced (POSIX), and what a name stands
for does not turn into a link by itself. That holds on file systems that keep their own times on a
device, and once they are older than the coarsest of them can tell (`_COARSEST_NS`).
"""

from __future__ import annotations

import os
import time

#: File times that are this old cannot be those of a later change, too: FAT counts in two seconds.
_COARSEST_NS = 2_500_000_000


class Names:
    """Names in one folder that were looked at: those that are no links, and those not there. Of the
    first it is told whether they are of the same kind still, not what else became of them."""

    __slots__ = ("absent", "plain", "stamp")

    def __init__(self) -> None:
        self.plain: list[tuple[str, int]] = []
        self.absent: list[str] = []
        self.stamp: tuple[int, ...] | None = None  #: of the folder, when each of them was the same

    def add(self, path: str, mode: int | None) -> None:
        if mode is None:
            self.absent.append(path)
        else:
            self.plain.append((path, mode))

    @property
    def is_worth_it(self) -> bool:
        """One look at the folder instead of several, or instead of one that is made anyway."""
        return bool(self.absent) or len(self.plain) > 1

    def hold(self, folder: os.stat_result) -> bool:
        """By a look at the folder of this moment. Raises `OSError` if one of them is gone."""
        stamp = (
            folder.st_dev,
            folder.st_ino,
            folder.st_mode,
            folder.st_mtime_ns,
            folder.st_ctime_ns,
        )
        if stamp == self.stamp:
            return True
        # The folder was looked at first, then the clock: what changes from here on changes times.
        settled = max(folder.st_mtime_ns, folder.st_ctime_ns) < time.time_ns() - _COARSEST_NS
        for path, mode in self.plain:
            if os.lstat(path).st_mode != mode:
                return False
        for path in self.absent:
            if os.access(path, os.F_OK, follow_symlinks=False):
                return False
        self.stamp = stamp if settled and os.major(folder.st_dev) else None
        return True
