"""How busy the machine is with work that is not the benchmark's."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL_THREADS = 2  #: their parent


class Watch:
    """The processor time of all processes that this one did not start, from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = _used_by_others_s()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def processors_used_by_others(self) -> float:
        """On average."""
        return max(0.0, _used_by_others_s() - self._before) / self.seconds


def _used_by_others_s() -> float:
    """Of processes that run and, once their parents have waited for them, of those that ended."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(name)] = int(fields[1])
        used[int(name)] = sum(map(int, fields[11:15])) / _TICKS  # its own and its children's
    mine = {os.getpid(), _KERNEL_THREADS}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(each for pid, each in used.items() if pid not in mine)
