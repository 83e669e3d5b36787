"""Control groups, version 1: one group per controller, joined by writing "0" to `tasks`."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from actum.sandbox.cgroup import (
    PARENT,
    V1_CONTROLLERS,
    CgroupsUnavailable,
    Gauges,
    Layout,
    Usage,
    counter,
    read,
    remove_folder,
    write,
)
from actum.sandbox.wire import CPU_PERIOD_US
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Recipe

#: Files with the usage of a sandbox, by controller; older kernels lack the last.
_USAGE = (
    ("memory", "memory.oom_control"),
    ("memory", "memory.max_usage_in_bytes"),
    ("cpuacct", "cpuacct.usage"),
    ("cpu", "cpu.stat"),
    ("pids", "pids.events"),
    ("pids", "pids.peak"),
)
_MECHANISMS = {
    "memory_mb": "cgroup v1 memory, whole tree",
    "cpu_cores": "cgroup v1 cpu quota",
    "max_children": "cgroup v1 pids, threads told apart by seccomp",
}


@value(kw_only=False)
class Hierarchies:
    """Where each controller is mounted."""

    mounts: Mapping[str, str]

    @classmethod
    def of(cls, layout: Layout) -> Hierarchies:
        return cls({name: layout.v1[name] for name in V1_CONTROLLERS})

    @property
    def mechanisms(self) -> Mapping[str, str]:
        return _MECHANISMS

    def parents(self, uid: int) -> dict[str, str]:
        """The parents of a user's groups: root's own, or a subtree delegated to that user."""
        owner = PARENT if uid == 0 else f"{PARENT}/uid-{uid}"
        return {controller: f"{mount}/{owner}" for controller, mount in self.mounts.items()}

    def make(self, name: str) -> Group:
        parents = self.parents(os.geteuid())
        folders = {controller: f"{parent}/{name}" for controller, parent in parents.items()}
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
            raise _unavailable(error) from error
        return Group(folders)

    def recipe(self, mark: str) -> tuple[Recipe, list[str]]:
        parents = self.parents(os.geteuid())
        folders = [*dict.fromkeys(parents.values())]
        at = {controller: folders.index(parent) for controller, parent in parents.items()}
        memory, pids, cpu = at["memory"], at["pids"], at["cpu"]
        amount = "{memory_bytes}"
        limits = [(memory, "memory.limit_in_bytes", amount)]
        swap = "memory.memsw.limit_in_bytes"
        if os.path.exists(f"{parents['memory']}/{swap}"):
            # It may never be below the other limit, so it is lifted first and set last.
            limits = [(memory, swap, "-1"), *limits, (memory, swap, amount)]
        # Socket buffers are not included, and need a limit of their own.
        sockets = "memory.kmem.tcp.limit_in_bytes"
        if os.path.exists(f"{parents['memory']}/{sockets}"):
            limits.append((memory, sockets, amount))
        limits += [(pids, "pids.max", "{tasks}"), (cpu, "cpu.cfs_quota_us", "{quota_us}")]
        return {
            "mark": mark,
            "born_inside": False,
            "doors": [(index, "tasks") for index in range(len(folders))],
            "once": [
                (memory, "memory.swappiness", "0"),
                (cpu, "cpu.cfs_period_us", str(CPU_PERIOD_US)),
            ],
            "limits": limits,
            "usage": [(at[controller], file) for controller, file in usage_files(parents)],
            "task_limit": (pids, "pids.max"),
            "oom": (memory, "memory.oom_control"),
            "register": (memory, "cgroup.event_control"),
        }, folders

    def made(self, name: str, oom_event: int) -> Group:
        parents = self.parents(os.geteuid())
        folders = {controller: f"{parent}/{name}" for controller, parent in parents.items()}
        return Group(folders, oom_event)


def usage_files(folders: Mapping[str, str]) -> list[tuple[str, str]]:
    """The files with the usage of a sandbox: controller and name."""
    return [row for row in _USAGE if os.path.exists(f"{folders[row[0]]}/{row[1]}")]


def _unavailable(error: OSError) -> CgroupsUnavailable:
    if os.geteuid() == 0:
        remedy = (
            "let this process write to the version 1 hierarchies below /sys/fs/cgroup (in a"
            " container they are mounted read-only by default)"
        )
    else:
        remedy = (
            f"let root give you a cgroup subtree: `sudo actum host delegate --user {os.geteuid()}`"
        )
    return CgroupsUnavailable(f"{error.filename}: {error.strerror}", remedy)


class Group:
    """The groups of one sandbox, one per hierarchy."""

    oom_poll = select.POLLIN

    def __init__(self, folders: Mapping[str, str], oom_event: int = -1) -> None:
        self._folders = folders
        self.oom_event = oom_event
        self._gauges = Gauges()

    def limit(self, *, memory_bytes: int, cpu_cores: int, children: int) -> None:
        memory, cpu = self._folders["memory"], self._folders["cpu"]
        try:
            write(f"{memory}/memory.limit_in_bytes", memory_bytes)
            swap = f"{memory}/memory.memsw.limit_in_bytes"
            if os.path.exists(swap):
                write(swap, memory_bytes)
            write(f"{memory}/memory.swappiness", 0)
            # Socket buffers are not included, and need a limit of their own.
            sockets = f"{memory}/memory.kmem.tcp.limit_in_bytes"
            if os.path.exists(sockets):
                write(sockets, memory_bytes)
            write(f"{self._folders['pids']}/pids.max", 1 + children)
            write(f"{cpu}/cpu.cfs_period_us", CPU_PERIOD_US)
            write(f"{cpu}/cpu.cfs_quota_us", cpu_cores * CPU_PERIOD_US)
            self._watch_oom()
        except OSError as error:
            raise _unavailable(error) from error

    def _watch_oom(self) -> None:
        """An eventfd that becomes readable when the group runs out of memory."""
        self.oom_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        folder = self._folders["memory"]
        control = os.open(f"{folder}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        write(f"{folder}/cgroup.event_control", f"{self.oom_event} {control}")
        os.close(control)

    def oom_heard(self) -> bool:
        # It fires when the memory runs out, a moment before the counter shows a kill.
        os.eventfd_read(self.oom_event)
        return True

    def oom_kills(self) -> int:
        return counter(read(f"{self._folders['memory']}/memory.oom_control"), "oom_kill")

    def usage(self, counters: Sequence[str] | None = None) -> Usage:
        if counters is None:
            counters = self._gauges.read(self._usage_files)
        oom, peak, cpu_ns, cpu, events, *tasks = counters
        kills = counter(oom, "oom_kill")
        return Usage(
            memory_peak_bytes=int(peak),
            cpu_ns=int(cpu_ns),
            periods_throttled=counter(cpu, "nr_throttled"),
            oom_kills=kills,
            oom_proof=f"memory.oom_control oom_kill 0 -> {kills}",
            forks_refused=counter(events, "max"),
            tasks_peak=int(tasks[0]) if tasks else None,
        )

    def _usage_files(self) -> list[str]:
        # The parents show which files exist: an init whose tool has ended removes a group, and the
        # remaining counters would be taken for others.
        stay = {place: os.path.dirname(folder) for place, folder in self._folders.items()}
        return [f"{self._folders[place]}/{file}" for place, file in usage_files(stay)]

    def close(self) -> None:
        self._gauges.close()
        if self.oom_event >= 0:
            os.close(self.oom_event)
            self.oom_event = -1

    def remove(self) -> None:
        self.close()
        for folder in dict.fromkeys(self._folders.values()):
            remove_folder(folder)
