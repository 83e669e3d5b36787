"""Limits of a container: as the engine is asked for them, and as the engine and the kernel have
them. An engine may ignore a limit silently; what differs is refused before the tool starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from actum.errors import Refused
from actum.sandbox.wire import CPU_PERIOD_US
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Request

#: In a container, by cgroup version. The first lines are the limits; all are compared.
_V1 = (
    "memory/memory.limit_in_bytes",
    "memory/memory.memsw.limit_in_bytes",
    "pids/pids.max",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
)
_V2 = ("memory.max", "memory.swap.max", "pids.max", "cpu.max")
_PRIVILEGES = ("/proc/self/status", "/proc/self/uid_map")
_NETWORK = tuple(f"/proc/self/net/{name}" for name in ("dev", "route", "fib_trie", "if_inet6"))
GROUPS = "/sys/fs/cgroup"
_PAGE = 4096
_REMEDY = (
    "Rootless engines need cgroup version 2 with delegated controllers; on version 1 run the engine"
    " as root. `actum doctor` lists what this one enforces."
)


@value
class ContainerLimits:
    """What one container is limited to. Part of its shape: only an equal request may use it."""

    memory_bytes: int
    tasks: int  #: the init, the tool and its children
    cpu_cores: int
    scratch_bytes: int
    artifacts_bytes: int

    @classmethod
    def of(cls, request: Request) -> ContainerLimits:
        return cls(
            memory_bytes=request["memory_bytes"],
            tasks=2 + request["max_children"],
            cpu_cores=request["cpu_cores"],
            scratch_bytes=request["scratch_bytes"],
            artifacts_bytes=request["artifacts_bytes"],
        )


def shown_files(version: int) -> list[str]:
    """The files that the init of a container reads for `compare`."""
    return [
        *(f"{GROUPS}/{name}" for name in (_V1 if version == 1 else _V2)),
        *_PRIVILEGES,
        *_NETWORK,
    ]


def kept_in(
    folders: Mapping[str, str], version: int, texts: Sequence[str | None]
) -> dict[str, str]:
    """The files of the host with the limits that were compared, and their contents. `folders`: the
    container's groups, by controller."""
    found = {}
    for name, text in zip(_V1 if version == 1 else _V2, texts, strict=False):
        controller, _, file = name.rpartition("/")
        if text is not None:
            found[f"{folders[controller]}/{file}"] = text
    return found


def require_kept(limits: ContainerLimits, inspected: Any) -> None:
    """Compare with what the engine says that it has set."""
    host = inspected.get("HostConfig") or {}
    asked = {
        "memory_mb (Memory)": (limits.memory_bytes, host.get("Memory")),
        "max_children (PidsLimit)": (limits.tasks, host.get("PidsLimit")),
        "privileges (Privileged)": (False, host.get("Privileged")),
        "network (NetworkMode)": ("none", host.get("NetworkMode")),
        "filesystem (ReadonlyRootfs)": (True, host.get("ReadonlyRootfs")),
    }
    quota, period = host.get("CpuQuota") or 0, host.get("CpuPeriod") or CPU_PERIOD_US
    nano = host.get("NanoCpus") or quota * 1_000_000_000 // period
    asked["cpu_cores (NanoCpus)"] = (limits.cpu_cores * 1_000_000_000, nano)
    for name, (wanted, found) in asked.items():
        if wanted != found:
            raise _not_enforced(name, wanted, found, "the engine")


def require_inside(
    limits: ContainerLimits,
    uid: int,
    version: int,
    texts: Sequence[str | None],
    spaces: Sequence[int],
) -> None:
    """Compare with what the init has read inside, from files of the kernel."""
    *groups, status, uids, devices, routes, addresses, addresses6 = texts
    _require_groups(limits, version, groups)
    fields = dict(re.findall(r"^(\w+):\s*(.*)$", status or "", re.MULTILINE))
    nothing = "0" * 16
    for name, wanted in (
        ("CapEff", nothing),
        ("CapPrm", nothing),
        ("CapBnd", nothing),
        ("NoNewPrivs", "1"),
        # A filter of the engine's would answer before ours, so no violation would be seen.
        ("Seccomp", "0"),
        ("Uid", "\t".join([str(uid)] * 4)),
    ):
        if fields.get(name) != wanted:
            raise _not_enforced(f"privileges ({name})", wanted, fields.get(name), "the kernel")
    if (uids or "").split() != ["0", "0", "4294967295"]:
        raise _not_enforced("privileges (uid_map)", "0 0 4294967295", uids, "the kernel")
    _require_no_network(devices or "", routes or "", addresses or "", addresses6 or "")
    for name, wanted_bytes, found in zip(
        ("scratch_bytes (/tmp)", "scratch_bytes (/dev/shm)", "artifacts_bytes"),
        (limits.scratch_bytes, limits.scratch_bytes, limits.artifacts_bytes),
        spaces,
        strict=True,
    ):
        if not 0 < found <= -(-wanted_bytes // _PAGE) * _PAGE:
            raise _not_enforced(name, wanted_bytes, found, "the kernel")


def _require_no_network(devices: str, routes: str, addresses: str, addresses6: str) -> None:
    """No device but the loopback has an address, and nothing is routed.

    Other devices may be there: tunnels, which every new network namespace has where their modules
    are loaded. All are down, and without a capability nobody can set them up.
    """
    names = re.findall(r"^\s*(\S+):", devices, re.MULTILINE)
    own = re.findall(r"\|-- (\S+)\n\s*/32 host LOCAL", addresses)
    found = [
        *(name for name in names if name.startswith("eth")),
        *(f"{line.split()[0]} (route)" for line in routes.splitlines()[1:] if line.strip()),
        *(address for address in own if not address.startswith("127.")),
        *(line.split()[-1] for line in addresses6.splitlines() if line.split()[-1:] != ["lo"]),
    ]
    if "lo" not in names or not own or found:
        raise _not_enforced("network", "a loopback alone", ", ".join(found or names), "the kernel")


def _require_groups(limits: ContainerLimits, version: int, texts: Sequence[str | None]) -> None:
    memory = limits.memory_bytes // _PAGE * _PAGE  # the kernel rounds down to whole pages
    quota, period = limits.cpu_cores * CPU_PERIOD_US, CPU_PERIOD_US
    found = [None if text is None else text.strip() for text in texts]
    if version == 1:
        wanted = [str(memory), str(memory), str(limits.tasks), str(quota), str(period)]
    else:
        wanted = [str(memory), "0", str(limits.tasks), f"{quota} {period}"]
    names = _V1 if version == 1 else _V2
    for name, right, actual in zip(names, wanted, found, strict=True):
        if actual is None and ("memsw" in name or "swap" in name):
            continue  # this kernel does not count swap
        if right != actual:
            raise _not_enforced(name, right, actual, "the kernel")


def _not_enforced(what: str, wanted: object, found: object, source: str) -> Refused:
    return Refused(
        "LIMIT_NOT_ENFORCEABLE",
        f"The container has another limit than it was asked for: {what} is {found} by {source},"
        f" not {wanted}.",
        remedy=_REMEDY,
    )
