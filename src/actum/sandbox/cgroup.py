"""Control groups: memory, processes and CPU over the whole tree, with the kernel's own proof.

The interface that a runner needs, for either version; `cgroup_v1` and `cgroup_v2` implement it. One
fresh group per sandbox: the spawner makes it by their recipe (`jail/group.c`), the tool's process
joins it before it becomes the tool, and the host removes it. The init stays outside, so that an OOM
kill never hits the process that reports it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from actum.evidence.owner import current_owner, is_alive
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Recipe

V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
V2_CONTROLLERS = ("memory", "pids", "cpu")
#: Folder below the mount points; root makes groups only inside of it.
PARENT = "actum"
_REMOVE_TRIES, _SWEEP_TRIES, _REMOVE_PAUSE_S = 2_000, 200, 0.001
_GAUGE_BYTES = 8_192
_NUMBERS = itertools.count(1)
#: Another sweep was quicker, or the group was left by another user in a shared folder.
_NOT_OURS_TO_REMOVE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS)


class CgroupsUnavailable(Exception):
    """This process cannot make the groups it needs; the text has the reason."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@value
class Usage:
    """The resources that one sandbox used, by the kernel's own counters."""

    memory_peak_bytes: int | None  #: ``None``: this kernel does not count it
    cpu_ns: int
    periods_throttled: int
    oom_kills: int
    oom_proof: str
    forks_refused: int
    tasks_peak: int | None  #: ``None``: this kernel does not count it


class Cgroup(Protocol):
    """The group, or groups, of one sandbox."""

    @property
    def oom_event(self) -> int:
        """A descriptor to poll for `oom_poll`: the group may have run out of memory."""
        ...

    @property
    def oom_poll(self) -> int: ...

    def limit(self, *, memory_bytes: int, cpu_cores: int, children: int) -> None:
        """Set every limit, or raise `CgroupsUnavailable`."""
        ...

    def oom_heard(self) -> bool:
        """Read the event; true if an OOM kill is counted or may still be."""
        ...

    def oom_kills(self) -> int: ...

    def usage(self, counters: Sequence[str] | None = None) -> Usage:
        """From the texts that the init has read, or else from the files."""
        ...

    def close(self) -> None:
        """Close its descriptors."""
        ...

    def remove(self) -> None:
        """Close and remove it."""
        ...


class Cgroups(Protocol):
    """The groups of this host."""

    @property
    def mechanisms(self) -> Mapping[str, str]:
        """Limit -> mechanism, for the enforcement manifest."""
        ...

    def make(self, name: str) -> Cgroup: ...

    def recipe(self, mark: str) -> tuple[Recipe, list[str]]:
        """The recipe by which the spawner makes groups, and the folders."""
        ...

    def made(self, name: str, oom_event: int) -> Cgroup:
        """A group that the spawner has made."""
        ...


def owner_mark() -> str:
    """The prefix of our groups' names. It identifies the owner, so that another process can detect
    a group that was left behind."""
    _boot, namespace, pid, start = current_owner().split(" ")
    number = namespace.removeprefix("pid:[").removesuffix("]")
    return f"{number}-{pid}-{start}"


def fresh_number() -> int:
    return next(_NUMBERS)


def fresh_name() -> str:
    """A name that is never used twice: a group is for one sandbox only."""
    return f"{owner_mark()}-{fresh_number()}"


def sweep_folder(parent: str) -> None:
    """Remove the groups in `parent` whose owner is gone, and kill the processes in them."""
    boot = current_owner().split(" ")[0]
    for name in os.listdir(parent) if os.path.isdir(parent) else ():
        parts = name.split("-")
        if len(parts) != 4 or not all(part.isdigit() for part in parts):
            continue
        namespace, pid, start, _number = parts
        if not is_alive(f"{boot} pid:[{namespace}] {pid} {start}"):
            _remove_left(f"{parent}/{name}")


def _remove_left(folder: str) -> None:
    for _ in range(_SWEEP_TRIES):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno in _NOT_OURS_TO_REMOVE:
                return
            if error.errno != errno.EBUSY:
                raise
            kill_group(folder)
            time.sleep(_REMOVE_PAUSE_S)
        else:
            return
    # Stuck in the kernel. It stays for the next sweep.


def write(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # with the file's name
    finally:
        os.close(descriptor)


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


class Gauges:
    """Files of a live group, opened once and read repeatedly."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def read(self, paths: Callable[[], Sequence[str]]) -> list[str]:
        if not self._open:
            self._open = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths()]
        return [os.pread(descriptor, _GAUGE_BYTES, 0).decode() for descriptor in self._open]

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


def counter(text: str, name: str) -> int:
    """The number after `name`, at the beginning of a line."""
    _before, _name, found = f"\n{text}".partition(f"\n{name} ")
    return int(found.partition("\n")[0] or 0)


def kill_group(folder: str) -> None:
    """Kill the processes in a group that is never used again."""
    kill = f"{folder}/cgroup.kill"
    if os.path.exists(kill):  # version 2, Linux 5.14 or later
        with contextlib.suppress(FileNotFoundError):  # another sweep was quicker
            write(kill, 1)
        return
    for pid in read(f"{folder}/cgroup.procs").split():
        try:
            handle = os.pidfd_open(int(pid))
        except OSError:
            continue  # it has died, or is not in this pid namespace
        # Checked again after the open: until then the pid could be reused.
        if pid in read(f"{folder}/cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def remove_folder(folder: str) -> None:
    """Remove a group, with retries: the last task leaves its group a moment after it was reaped. A
    group that is gone already was removed by another process."""
    for _ in range(_REMOVE_TRIES):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(_REMOVE_PAUSE_S)
        else:
            return
    os.rmdir(folder)


@value
class Layout:
    """The controllers of this host, and their mount points."""

    v1: Mapping[str, str]  #: controller -> mount point
    v2: str  #: mount point, "" if there is none
    v2_controllers: frozenset[str]

    @classmethod
    def of_host(cls) -> Layout:
        table = read("/proc/self/mounts")
        unified = next((target for target, kind, _ in _mounts(table) if kind == "cgroup2"), "")
        offered = read(f"{unified}/cgroup.controllers") if unified else ""
        return cls.parse(table, offered)

    @classmethod
    def parse(cls, mount_table: str, v2_controllers: str) -> Layout:
        v1: dict[str, str] = {}
        v2 = ""
        for target, kind, options in _mounts(mount_table):
            if kind == "cgroup":
                v1 |= dict.fromkeys(options.split(","), target)
            elif kind == "cgroup2":
                v2 = v2 or target
        return cls(v1=v1, v2=v2, v2_controllers=frozenset(v2_controllers.split()))

    def version(self) -> int:
        """1 or 2: the one with every controller we need; on a hybrid host that is 1.

        A controller can be in one version only.
        """
        if all(name in self.v1 for name in V1_CONTROLLERS):
            return 1
        if all(name in self.v2_controllers for name in V2_CONTROLLERS):
            return 2
        places = [f"{name} {self._place(name)}" for name in V2_CONTROLLERS]
        raise CgroupsUnavailable(
            f"neither cgroup version has all controllers ({', '.join(places)})",
            "boot with `cgroup_no_v1=all` on the kernel's command line (where memory is in neither,"
            " add `cgroup_enable=memory`), and mount cgroup2 on /sys/fs/cgroup",
        )

    def _place(self, controller: str) -> str:
        if controller in self.v1:
            return "in v1"
        return "in v2" if controller in self.v2_controllers else "nowhere"


def _mounts(table: str) -> list[tuple[str, str, str]]:
    """(target, kind, options)"""
    rows = [line.split() for line in table.splitlines()]
    return [(row[1], row[2], row[3]) for row in rows]
