"""What an engine is asked for: a container in which our init runs, from the request for it.

The engine gets no command, environment, secret or stream of the tool. Its filter of system calls is
off: it would answer with an errno before ours can report the call, so a violation would go
unnoticed. The tool gets ours, an allow-list that is stricter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from actum.contract.levels import is_within
from actum.evidence.owner import current_owner
from actum.runners.container.container_limits import ContainerLimits
from actum.runners.layers import copy_in
from actum.sandbox.root import SYSTEM_LINKS
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Request

#: Containers of Actum: the identity of the process that made one, and its user.
OWNER_LABEL, USER_LABEL = "urn.actum.owner", "urn.actum.user"
INIT, DOOR = "/actum/init", "/actum/door"
_SCRATCH_INODES, _ARTIFACT_INODES = 16_384, 1_024
_CPU = 1_000_000_000
#: Of /proc: replaced by texts of ours. The engines permit no other mount there.
PROC_FILES = ("cpuinfo", "meminfo", "stat", "uptime", "loadavg")
#: Of /proc: needed by programs, and kept as they are.
_PROC_KEPT = ("sys", "version", "filesystems", *PROC_FILES)
_PROC_MASKED = ("sys/kernel/random/boot_id", "sys/kernel/random/uuid")


@value
class Mounted:
    """One bind mount: a path of the host in the container."""

    source: str
    target: str
    write: bool = False


@value
class Staged:
    """Files of the host that are made for containers. The first two serve all of one runner."""

    common: str  #: `init`, `etc/`, `proc/`, `nothing/` and `no-file`
    etc_folders: tuple[str, ...]
    own: str  #: `door/` and `run/` of one container


def config(
    image: str,
    limits: ContainerLimits,
    mounts: tuple[Mounted, ...],
    *,
    user: tuple[int, int],
    podman: bool,
    runtime: str,
    version: int,
) -> dict[str, Any]:
    """The body of POST /containers/create."""
    host: dict[str, Any] = {
        "AutoRemove": True,
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", "seccomp=unconfined"],
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "PidsLimit": limits.tasks,
        "NanoCpus": limits.cpu_cores * _CPU,
        "ShmSize": limits.scratch_bytes,
        "LogConfig": {"Type": "none", "Config": {}},
        # The lowest ports as well: names are reachable at addresses of the container's own.
        "Sysctls": {"net.ipv4.ip_unprivileged_port_start": "0"},
        "Mounts": [
            {
                "Type": "bind",
                "Source": each.source,
                "Target": each.target,
                "ReadOnly": not each.write,
                "BindOptions": {"Propagation": "rprivate"},
            }
            for each in mounts
        ],
    }
    private = {
        "/tmp": (limits.scratch_bytes, _SCRATCH_INODES, "exec"),
        "/artifacts": (limits.artifacts_bytes, _ARTIFACT_INODES, "noexec"),
    }
    if podman:
        # Where the root is read-only it mounts one of any size here, which is a link to /tmp.
        private["/var/tmp"] = private["/tmp"]
    host["Tmpfs"] = {
        target: f"rw,nosuid,nodev,{executable},mode=1777,size={size}"
        # Podman takes no limit of names.
        + ("" if podman else f",nr_inodes={names}")
        for target, (size, names, executable) in private.items()
    }
    masked = [f"/proc/{name}" for name in _masked()]
    if podman:
        host["SecurityOpt"].append("mask=" + ":".join(masked))
    else:
        host["MaskedPaths"] = masked
    if version == 1:
        host["MemorySwappiness"] = 0
    if runtime:
        host["Runtime"] = runtime
    return {
        "Image": image,
        "Entrypoint": [INIT, "container", f"{DOOR}/host"],
        "Cmd": [],
        "Env": [],
        "User": f"{user[0]}:{user[1]}",
        "Hostname": "actum",
        "WorkingDir": "/",
        "Labels": {OWNER_LABEL: current_owner(), USER_LABEL: str(os.geteuid())},
        "HostConfig": host,
    }


def _masked() -> Iterator[str]:
    """What /proc shows beside processes: it describes the host."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not (entry.name.isdigit() or entry.is_symlink() or entry.name in _PROC_KEPT):
                yield entry.name
    yield from _PROC_MASKED


def system_mounts(staged: Staged) -> Iterator[Mounted]:
    """The image `host`: this host's programs and libraries, and an /etc of ours."""
    yield Mounted(source="/usr", target="/usr")
    for name in SYSTEM_LINKS:
        if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"):
            yield Mounted(source=f"/{name}", target=f"/{name}")
    yield Mounted(source=f"{staged.common}/etc", target="/etc")
    for name in staged.etc_folders:
        yield Mounted(source=f"/etc/{name}", target=f"/etc/{name}")


def common_mounts(staged: Staged) -> Iterator[Mounted]:
    yield Mounted(source=f"{staged.common}/init", target=INIT)
    yield Mounted(source=f"{staged.own}/door", target=DOOR)
    yield Mounted(source=f"{staged.own}/run", target="/run")
    for name in ("hosts", "resolv.conf"):
        yield Mounted(source=f"{staged.own}/etc/{name}", target=f"/etc/{name}")
    # By name as well: an engine writes files of its own over them.
    for name in ("hostname", "passwd", "group"):
        yield Mounted(source=f"{staged.common}/etc/{name}", target=f"/etc/{name}")
    for name in PROC_FILES:
        yield Mounted(source=f"{staged.common}/proc/{name}", target=f"/proc/{name}")


def granted_mounts(
    request: Request, staged: Staged, host_folders: Mapping[str, str]
) -> Iterator[Mounted]:
    """Granted paths, sealed inputs over names in them, read-only names where a tool writes
    directly, and covers of what is denied. `host_folders`: folder -> the one that is shown in
    its place."""
    shown: Mapping[str, str] = {
        grant["path"]: grant["source"]
        or (copy_in(grant["layers"]) if grant["write"] else "")
        or _at(grant["path"], host_folders)
        for grant in request["grants"]
    }
    for grant in request["grants"]:
        yield Mounted(source=shown[grant["path"]], target=grant["path"], write=bool(grant["write"]))
    # An engine would make a name that is missing.
    for path in request["protect"]:
        there = _at(path, shown)
        if any(is_within(path, granted) for granted in shown) and os.path.lexists(there):
            yield Mounted(source=there, target=path)
    for path in request["deny"]:
        there = _at(path, shown)
        if any(is_within(path, granted) for granted in shown) and os.path.lexists(there):
            cover = "nothing" if os.path.isdir(there) else "no-file"
            yield Mounted(source=f"{staged.common}/{cover}", target=path)


def _at(path: str, shown: Mapping[str, str]) -> str:
    """Where the host has what a container is shown at `path`."""
    holder = max((folder for folder in shown if is_within(path, folder)), key=len, default=None)
    if holder is None:
        return path
    return os.path.normpath(f"{shown[holder]}/{os.path.relpath(path, holder)}")
