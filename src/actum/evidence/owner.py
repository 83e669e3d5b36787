"""Which process an unfinished execution belongs to, and whether that process is still there.

A process id alone means nothing after a restart or in another pid namespace. With the boot, the
namespace and the start time it identifies one process for ever.
"""

from __future__ import annotations

import os
from functools import cache


def current_owner() -> str:
    """The identity of this process; no other process ever has the same."""
    return _owner(os.getpid())


def owner_of(pid: int) -> str:
    """The identity of another process of this pid namespace."""
    return f"{this_boot()} {_namespace()} {pid} {_start_of(pid)}"


def is_alive(owner: str) -> bool:
    """Whether the owner still runs. Where that cannot be seen from here, it is taken to run."""
    boot, namespace, pid, start = owner.split(" ")
    if boot != this_boot():
        return False
    if namespace != _namespace():
        return True  # another container's process: it must close its own executions
    return _start_of(int(pid)) == start


def seen_alive(owner: str) -> bool | None:
    """The same for an owner of any machine; ``None`` where it cannot be seen from here."""
    boot, namespace, pid, start = owner.split(" ")
    if boot != this_boot() or namespace != _namespace():
        return None
    return _start_of(int(pid)) == start


@cache
def this_boot() -> str:
    """The boot id: a new one after each start of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


@cache
def _owner(pid: int) -> str:  # by pid, because a fork is another process
    return owner_of(pid)


@cache
def _namespace() -> str:  # a process stays in its pid namespace for life, and a fork in the same
    return os.readlink("/proc/self/ns/pid")


def _start_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in the second field may hold anything, spaces and brackets too.
            after_name = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if after_name[0] in (b"Z", b"X"):
        return None  # dead, not reaped by its parent yet
    return after_name[19].decode()
