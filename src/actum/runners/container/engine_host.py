"""What one engine on this host can enforce, and the exact remedy if it cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping

from actum import kernel
from actum.runners import manifest
from actum.runners.base import Capability
from actum.runners.container.engine_api import Engine, EngineError, EngineInfo
from actum.sandbox.cgroup import CgroupsUnavailable, Layout
from actum.sandbox.host_probe import Host
from actum.value import value

#: Runtimes that keep what a container is asked for in control groups of this host.
_OWN_KERNEL = ("runsc", "kata")


@value
class EngineHost:
    """One engine, its problems, and the host in the form that the manifest reads."""

    problems: Mapping[str, tuple[str, str]]  #: part -> (problem, remedy)
    enforcing: Host
    cgroup_version: int

    def capabilities(self) -> tuple[Capability, ...]:
        rows = manifest.capabilities(self.enforcing)
        if not self.problems:
            return rows
        remedies = " ".join(dict.fromkeys(remedy for _, remedy in self.problems.values()))
        return tuple(
            Capability(limit=row.limit, enforceable=False, mechanism=row.mechanism, remedy=remedies)
            for row in rows
        )


@value
class _EngineGroups:
    """The groups that the engine makes: only the mechanisms are asked for."""

    mechanisms: Mapping[str, str]


def examine(engine: Engine, runtime: str) -> EngineHost:
    problems: dict[str, tuple[str, str]] = {}
    name, version = "docker", 0
    if not kernel.ARCHITECTURE_SUPPORTED:
        problems["architecture"] = (
            f"the system call filter is written for x86-64, this is {os.uname().machine}",
            "Use the remote runner here.",
        )
    abi = kernel.landlock_abi()
    if abi == 0:
        problems["landlock"] = (
            "this kernel has no Landlock",
            "Boot a kernel of 5.13 or later with `landlock` in its lsm= list.",
        )
    try:
        version = Layout.of_host().version()
    except CgroupsUnavailable as error:
        problems["cgroups"] = (str(error), f"{error.remedy}.")
    try:
        name = engine.info.name
        problems |= problems_of(engine.info, runtime, version)
    except EngineError as error:
        problems["engine"] = (str(error), error.remedy)
    mechanisms = {
        "timeout_ms": "host deadline: SIGTERM, then SIGKILL by the init of the container",
        "memory_mb": f"{name}: cgroup v{version} memory without swap, read back inside",
        "cpu_cores": f"{name}: cgroup v{version} cpu quota, read back inside",
        "max_children": f"{name}: cgroup v{version} pids, "
        + ("threads told apart by seccomp" if os.geteuid() == 0 else "threads count as children"),
        "network": f"{name}: network namespace without routes, one door per name, addresses judged",
        "privileges": "user without privileges, no capabilities, no_new_privs, read back inside",
    }
    enforcing = Host(
        landlock_abi=abi,
        cgroups=_EngineGroups(mechanisms=mechanisms),  # type: ignore[arg-type]  # makes no group
        problems={},
    )
    return EngineHost(problems=problems, enforcing=enforcing, cgroup_version=version)


def problems_of(info: EngineInfo, runtime: str, version: int) -> dict[str, tuple[str, str]]:
    """Part -> (problem, remedy), of an engine that answers."""
    found: dict[str, tuple[str, str]] = {}
    if info.rootless and version == 1:
        found["rootless"] = (
            f"{info.name} runs without root on cgroup version 1, where it ignores limits",
            "Run the engine as root, or boot with `systemd.unified_cgroup_hierarchy=1`.",
        )
    elif info.rootless or info.remaps_users:
        found["users"] = (
            f"{info.name} maps the users of containers to others: a tool would own no file",
            "Use an engine without user namespaces (without `userns-remap`, as root).",
        )
    if runtime and any(kind in runtime for kind in _OWN_KERNEL):
        found["runtime"] = (
            f"the runtime {runtime} has a kernel of its own and passes no descriptors to the host",
            "Leave `[docker] runtime` out, or name runc or crun.",
        )
    elif runtime and runtime not in info.runtimes:
        found["runtime"] = (
            f"the engine has no runtime {runtime} (it has: {', '.join(info.runtimes)})",
            "Name one of these as `[docker] runtime` in actum.toml, or leave it out.",
        )
    return found
