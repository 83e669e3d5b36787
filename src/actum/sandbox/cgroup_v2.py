"""Control groups, version 2: one group for all controllers, entered by clone3 into it.

The kernel moves a process into a group only for a writer of the group, of the source, and of their
common ancestor; so an ordinary user's processes must *be* inside the delegated subtree. And a group
that enables controllers for its children may hold no process itself; so processes at the top of the
subtree are moved into a leaf of it first.

A group is never used twice: after `cgroup.kill` every later child that clone3 puts into it dies.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from actum.sandbox.cgroup import (
    PARENT,
    V2_CONTROLLERS,
    CgroupsUnavailable,
    Gauges,
    Layout,
    Usage,
    counter,
    kill_group,
    read,
    remove_folder,
    write,
)
from actum.sandbox.wire import CPU_PERIOD_US
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Recipe

#: Files with the usage of a sandbox; older kernels lack the last two.
_USAGE = ("memory.events", "cpu.stat", "pids.events", "memory.peak", "pids.peak")
_MECHANISMS = {
    "memory_mb": "cgroup v2 memory.max without swap, whole tree",
    "cpu_cores": "cgroup v2 cpu.max",
    "max_children": "cgroup v2 pids.max, threads told apart by seccomp",
}
#: The group of the processes of a delegated subtree, ours included.
LEAF = "actum-host"
_MOVE_TRIES = 50


@value(kw_only=False)
class Subtree:
    """The folder in which this process makes its groups."""

    folder: str

    @classmethod
    def prepare(cls, layout: Layout) -> Subtree:
        """Find the folder and enable the controllers in it; raises `CgroupsUnavailable`."""
        try:
            if _owns_root(layout):
                return cls(make_parent(layout.v2))
            return cls(_settle(place(layout)))
        except OSError as error:
            raise _unavailable(f"{error.filename}: {error.strerror}") from error

    @property
    def mechanisms(self) -> Mapping[str, str]:
        return _MECHANISMS

    def make(self, name: str) -> Group:
        folder = f"{self.folder}/{name}"
        try:
            os.mkdir(folder)
        except OSError as error:
            raise _unavailable(f"{error.filename}: {error.strerror}") from error
        return Group(folder)

    def recipe(self, mark: str) -> tuple[Recipe, list[str]]:
        once = [(0, "memory.oom.group", "1")]
        if os.path.exists(f"{self.folder}/memory.swap.max"):
            once.append((0, "memory.swap.max", "0"))
        return {
            "mark": mark,
            "born_inside": True,
            "doors": [],
            "once": once,
            "limits": [
                (0, "memory.max", "{memory_bytes}"),
                (0, "pids.max", "{tasks}"),
                (0, "cpu.max", f"{{quota_us}} {CPU_PERIOD_US}"),
            ],
            "usage": [(0, file) for file in usage_files(self.folder)],
            "task_limit": (0, "pids.max"),
            "oom": (0, "memory.events"),
            "register": None,
        }, [self.folder]

    def made(self, name: str, oom_event: int) -> Group:
        return Group(f"{self.folder}/{name}", oom_event)


def usage_files(folder: str) -> list[str]:
    return [file for file in _USAGE if os.path.exists(f"{folder}/{file}")]


def is_true_root(folder: str) -> bool:
    """Whether this is the root of all groups, not only the root of a cgroup namespace."""
    return not os.path.exists(f"{folder}/cgroup.type")


def _owns_root(layout: Layout) -> bool:
    return os.geteuid() == 0 and is_true_root(layout.v2)


def place(layout: Layout) -> str:
    """The folder for this process's groups, if they can be made."""
    if _owns_root(layout):
        return f"{layout.v2}/{PARENT}"
    own = _own_folder(layout.v2)
    return os.path.dirname(own) if os.path.basename(own) == LEAF else own


def make_parent(mount: str) -> str:
    """Root's own folder for groups, with the controllers enabled."""
    hand_down(mount)
    parent = f"{mount}/{PARENT}"
    os.makedirs(parent, exist_ok=True)
    hand_down(parent)
    return parent


def hand_down(folder: str) -> None:
    """Enable the controllers for the groups in `folder`."""
    if not set(V2_CONTROLLERS) <= set(read(f"{folder}/cgroup.subtree_control").split()):
        write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in V2_CONTROLLERS))


def _own_folder(mount: str) -> str:
    """The group of this process."""
    for line in read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return os.path.normpath(f"{mount}/{line[3:].lstrip('/')}")
    raise _unavailable("this process is in no cgroup v2 group")


def _settle(top: str) -> str:
    """Prepare the delegated subtree: move processes to the leaf, enable the controllers."""
    lacking = set(V2_CONTROLLERS) - set(read(f"{top}/cgroup.controllers").split())
    if lacking:
        raise _unavailable(f"{top}: the controllers {', '.join(sorted(lacking))} are not available")
    # The open checks the permission that a later join needs, before any process is moved.
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        os.close(os.open(f"{top}/{name}", os.O_WRONLY | os.O_CLOEXEC))
    os.makedirs(f"{top}/{LEAF}", exist_ok=True)
    for _ in range(_MOVE_TRIES):
        move_processes(top, f"{top}/{LEAF}")
        try:
            hand_down(top)
        except OSError as error:
            if error.errno != errno.EBUSY:  # a process forked meanwhile
                raise
        else:
            return top
    raise _unavailable(f"{top}: holds processes that cannot be moved")


def move_processes(source: str, target: str) -> None:
    for pid in read(f"{source}/cgroup.procs").split():
        # "0" is a process of another pid namespace; written back it would mean this process.
        if pid != "0":
            try:
                write(f"{target}/cgroup.procs", pid)
            except ProcessLookupError:
                continue  # it ended meanwhile


def _unavailable(message: str) -> CgroupsUnavailable:
    uid = os.geteuid()
    if uid == 0:
        remedy = (
            "give this container a writable cgroup2 mount on /sys/fs/cgroup with the controllers"
            " memory, pids and cpu, and a cgroup namespace of its own"
        )
    else:
        remedy = (
            "let root give you a cgroup subtree and put this shell into it:"
            f" `sudo actum host delegate --user {uid} --pid $$`; with systemd,"
            " `systemd-run --user --scope -p Delegate=yes` before the command does the same"
        )
    return CgroupsUnavailable(message, remedy)


class Group:
    """The group of one sandbox."""

    #: The file is always readable; a change is reported as POLLPRI.
    oom_poll = select.POLLPRI

    def __init__(self, folder: str, oom_event: int = -1) -> None:
        self._folder = folder
        self.oom_event = oom_event
        self._gauges = Gauges()

    @cached_property
    def _files(self) -> list[str]:
        # As in the recipe: from the parent, because the group may be removed by now.
        return usage_files(os.path.dirname(self._folder))

    def limit(self, *, memory_bytes: int, cpu_cores: int, children: int) -> None:
        folder = self._folder
        try:
            write(f"{folder}/memory.max", memory_bytes)
            self._forbid_swap()
            # Kill all processes at once: no shell goes on after its child was killed.
            write(f"{folder}/memory.oom.group", 1)
            write(f"{folder}/pids.max", 1 + children)
            write(f"{folder}/cpu.max", f"{cpu_cores * CPU_PERIOD_US} {CPU_PERIOD_US}")
            self.oom_event = os.open(f"{folder}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
            self.oom_heard()  # events are relative to the last read
        except OSError as error:
            raise _unavailable(f"{error.filename}: {error.strerror}") from error

    def _forbid_swap(self) -> None:
        swap = f"{self._folder}/memory.swap.max"
        if os.path.exists(swap):
            write(swap, 0)
        elif len(read("/proc/swaps").splitlines()) > 1:
            raise CgroupsUnavailable(
                "the host swaps, and this kernel cannot limit a group's swap",
                "switch swap off (`swapoff -a`), or boot with `swapaccount=1`",
            )

    def oom_heard(self) -> bool:
        # The event fires on every change of the file; a later kill fires another one.
        return counter(os.pread(self.oom_event, 4_096, 0).decode(), "oom_kill") > 0

    def oom_kills(self) -> int:
        return counter(read(f"{self._folder}/memory.events"), "oom_kill")

    def usage(self, counters: Sequence[str] | None = None) -> Usage:
        if counters is None:
            counters = self._gauges.read(lambda: [f"{self._folder}/{file}" for file in self._files])
        texts = dict(zip(self._files, counters, strict=True))
        cpu, kills = texts["cpu.stat"], counter(texts["memory.events"], "oom_kill")
        memory, tasks = texts.get("memory.peak"), texts.get("pids.peak")
        return Usage(
            memory_peak_bytes=None if memory is None else int(memory),
            cpu_ns=counter(cpu, "usage_usec") * 1_000,
            periods_throttled=counter(cpu, "nr_throttled"),
            oom_kills=kills,
            oom_proof=f"memory.events oom_kill 0 -> {kills}",
            forks_refused=counter(texts["pids.events"], "max"),
            tasks_peak=None if tasks is None else int(tasks),
        )

    def close(self) -> None:
        self._gauges.close()
        if self.oom_event >= 0:
            os.close(self.oom_event)
            self.oom_event = -1

    def remove(self) -> None:
        """Kill the remaining processes and remove the group: it is never used again."""
        self.close()
        try:
            os.rmdir(self._folder)
        except FileNotFoundError:
            return  # removed by another process
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            kill_group(self._folder)
            remove_folder(self._folder)
