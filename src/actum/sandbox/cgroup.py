"""Control groups: memory, processes and CPU over the whole tree, with the kernel's own proof.

One fresh group per sandbox and controller, made and read by the host process, joined by the tool's
process before it becomes the tool. Version 1 hierarchies; `find` says what this host offers.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
PARENT = "actum"
_CPU_PERIOD_US = 100_000
_REMOVE_TRIES, _REMOVE_PAUSE_S = 2_000, 0.001


class CgroupsUnavailable(Exception):
    """This process cannot make the groups it needs; the text says why."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where each controller is mounted (version 1)."""

    mounts: dict[str, str]

    @classmethod
    def find(cls) -> Hierarchies:
        mounts: dict[str, str] = {}
        with open("/proc/self/mounts") as table:
            for line in table:
                _device, target, kind, options, *_rest = line.split()
                if kind == "cgroup":
                    for option in options.split(","):
                        if option in CONTROLLERS:
                            mounts[option] = target
        missing = [name for name in CONTROLLERS if name not in mounts]
        if missing:
            raise CgroupsUnavailable(f"no cgroup v1 hierarchy for: {', '.join(missing)}")
        return cls(mounts)

    def parents(self, uid: int) -> dict[str, str]:
        """Where a user's groups are made; root's own, or a subtree delegated to that user."""
        owner = PARENT if uid == 0 else f"{PARENT}/uid-{uid}"
        return {controller: f"{self.mounts[controller]}/{owner}" for controller in CONTROLLERS}

    def folders(self, name: str) -> dict[str, str]:
        parents = self.parents(os.geteuid())
        return {controller: f"{parent}/{name}" for controller, parent in parents.items()}


@dataclass(frozen=True, slots=True)
class Usage:
    memory_peak_bytes: int
    cpu_ns: int
    oom_kills: int
    forks_refused: int
    tasks_peak: int | None


def _write(path: str, value: int | str) -> None:
    with open(path, "w") as file:
        file.write(str(value))


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _counter(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


class Cgroup:
    """The groups of one sandbox."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders
        self.oom_event = -1

    @classmethod
    def make(cls, hierarchies: Hierarchies, name: str) -> Cgroup:
        folders = hierarchies.folders(name)
        made = []
        try:
            for folder in dict.fromkeys(folders.values()):
                if os.geteuid() == 0:
                    os.makedirs(os.path.dirname(folder), exist_ok=True)
                os.mkdir(folder)
                made.append(folder)
        except OSError as error:
            for folder in made:
                os.rmdir(folder)
            raise CgroupsUnavailable(f"{error.filename}: {error.strerror}") from error
        return cls(folders)

    def limit(self, *, memory_bytes: int, cpu_cores: int, children: int) -> None:
        memory, cpu = self._folders["memory"], self._folders["cpu"]
        _write(f"{memory}/memory.limit_in_bytes", memory_bytes)
        swap = f"{memory}/memory.memsw.limit_in_bytes"
        if os.path.exists(swap):
            _write(swap, memory_bytes)
        _write(f"{memory}/memory.swappiness", 0)
        _write(f"{self._folders['pids']}/pids.max", 1 + children)
        _write(f"{cpu}/cpu.cfs_period_us", _CPU_PERIOD_US)
        _write(f"{cpu}/cpu.cfs_quota_us", cpu_cores * _CPU_PERIOD_US)
        self._watch_oom()

    def _watch_oom(self) -> None:
        """An eventfd that becomes readable when the group runs out of memory."""
        self.oom_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        folder = self._folders["memory"]
        control = os.open(f"{folder}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        _write(f"{folder}/cgroup.event_control", f"{self.oom_event} {control}")
        os.close(control)

    def open_task_limit(self) -> int:
        """For the init, which makes room for threads."""
        return os.open(f"{self._folders['pids']}/pids.max", os.O_WRONLY | os.O_CLOEXEC)

    def open_doors(self) -> list[int]:
        """Descriptors through which a process moves itself in by writing "0"."""
        return [
            os.open(f"{folder}/tasks", os.O_WRONLY | os.O_CLOEXEC)
            for folder in dict.fromkeys(self._folders.values())
        ]

    def oom_kills(self) -> int:
        return _counter(_read(f"{self._folders['memory']}/memory.oom_control"), "oom_kill")

    def usage(self) -> Usage:
        memory, pids = self._folders["memory"], self._folders["pids"]
        peak = f"{pids}/pids.peak"  # newer than the rest of pids
        return Usage(
            memory_peak_bytes=int(_read(f"{memory}/memory.max_usage_in_bytes")),
            cpu_ns=int(_read(f"{self._folders['cpuacct']}/cpuacct.usage")),
            oom_kills=self.oom_kills(),
            forks_refused=_counter(_read(f"{pids}/pids.events"), "max"),
            tasks_peak=int(_read(peak)) if os.path.exists(peak) else None,
        )

    def remove(self) -> None:
        if self.oom_event >= 0:
            os.close(self.oom_event)
            self.oom_event = -1
        for folder in dict.fromkeys(self._folders.values()):
            _remove(folder)


def _remove(folder: str) -> None:
    """The last task leaves its group a moment after it was reaped, hence the patience."""
    for _ in range(_REMOVE_TRIES):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(_REMOVE_PAUSE_S)
        else:
            return
    os.rmdir(folder)
