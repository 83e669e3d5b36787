"""What this host can enforce, found by trying it in a child, with the exact remedy if not."""

from __future__ import annotations

import os
from dataclasses import dataclass

from actum import kernel
from actum.sandbox.cgroup import Cgroup, CgroupsUnavailable, Hierarchies


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The answers, and what is missing in words that name the remedy."""

    landlock_abi: int
    hierarchies: Hierarchies | None
    problems: dict[str, tuple[str, str]]  #: part -> (what is wrong, remedy)


def examine() -> Host:
    problems: dict[str, tuple[str, str]] = {}
    if not kernel.ARCHITECTURE_SUPPORTED:
        problems["architecture"] = (
            f"the system call filter is written for x86-64, this is {os.uname().machine}",
            "use the docker or remote runner here",
        )
    abi = kernel.landlock_abi()
    if abi == 0:
        problems["landlock"] = (
            "this kernel has no Landlock",
            "boot a kernel of 5.13 or later with `landlock` in its lsm= list",
        )
    hierarchies: Hierarchies | None = None
    try:
        hierarchies = Hierarchies.find()
        Cgroup.make(hierarchies, f"probe-{os.getpid()}").remove()
    except CgroupsUnavailable as error:
        problems["cgroups"] = (str(error), _delegation(os.geteuid()))
    return Host(landlock_abi=abi, hierarchies=hierarchies, problems=problems)


def _delegation(uid: int) -> str:
    if uid == 0:
        return "mount the version 1 controllers memory, pids, cpu and cpuacct below /sys/fs/cgroup"
    return f"let root give you a cgroup subtree: `sudo actum host delegate --user {uid}`"
