"""What this host can enforce, found by trying, with the exact remedy if it cannot."""

from __future__ import annotations

import os

from actum import kernel
from actum.contract.limits import MIB
from actum.sandbox import cgroup_v1, cgroup_v2
from actum.sandbox.cgroup import Cgroups, CgroupsUnavailable, Layout, fresh_name
from actum.value import value


@value
class Host:
    """The results, and each problem with its remedy."""

    landlock_abi: int
    cgroups: Cgroups | None
    problems: dict[str, tuple[str, str]]  #: part -> (problem, remedy)


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
    cgroups: Cgroups | None = None
    try:
        cgroups = _cgroups()
    except CgroupsUnavailable as error:
        problems["cgroups"] = (str(error), error.remedy)
    return Host(landlock_abi=abi, cgroups=cgroups, problems=problems)


def _cgroups() -> Cgroups:
    """The groups of this host, after a group was made, limited and removed."""
    layout = Layout.of_host()
    cgroups: Cgroups
    if layout.version() == 1:
        cgroups = cgroup_v1.Hierarchies.of(layout)
    else:
        cgroups = cgroup_v2.Subtree.prepare(layout)
    trial = cgroups.make(fresh_name())
    try:
        trial.limit(memory_bytes=64 * MIB, cpu_cores=1, children=0)
    finally:
        trial.remove()
    return cgroups
