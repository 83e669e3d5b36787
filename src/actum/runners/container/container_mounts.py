"""The mounts of a container as the kernel has them, compared with what the engine was asked for.

The init reads its own table of mounts before a process of the tool exists. Files of the host that a
tool may see are judged one by one, so one mount more, one that is writable, or one of another file
is a refusal. A file system is recognised by its device, which is the same in every namespace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actum.contract.levels import is_within
from actum.errors import Refused
from actum.value import value

#: File systems of the kernel's own, without a file of the host.
_VIRTUAL = frozenset(
    {
        *("proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs"),
    }
)
#: Where engines mount these in every container.
_USUAL = ("/dev", "/proc", "/sys", "/run", "/var/tmp")
#: Engines show these read-only; the tool could otherwise change the host's kernel.
_READ_ONLY = ("/sys", "/proc/sys")


@value
class Mount:
    """One line of /proc/self/mountinfo."""

    device: str
    root: str  #: the path in that file system that is shown
    target: str
    kind: str
    writable: bool


def parse_mounts(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        options = {*fields[5].split(","), *rest[2].split(",")}
        yield Mount(
            device=fields[2],
            root=_unescaped(fields[3]),
            target=_unescaped(fields[4]),
            kind=rest[0],
            writable="ro" not in options,
        )


class HostMounts:
    """The table of the host."""

    def __init__(self, table: str) -> None:
        self._mounts = [*parse_mounts(table)]

    @classmethod
    def now(cls) -> HostMounts:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return cls(file.read())

    def shown_at(self, path: str) -> tuple[str, str]:
        """Device, and path in its file system, of a file of the host."""
        path = os.path.realpath(path)
        # The last one at a path covers the others.
        holder = max(
            (each for each in reversed(self._mounts) if is_within(path, each.target)),
            key=lambda each: len(each.target),
        )
        inside = os.path.relpath(path, holder.target)
        return holder.device, os.path.normpath(f"{holder.root.rstrip('/')}/{inside}")

    def has(self, mount: Mount, container: str) -> bool:
        """Whether a file system is one of the host's, and was not made for this container: Podman
        makes some on the host, in a folder with the container's id."""
        places = [each.target for each in self._mounts if each.device == mount.device]
        return any(container not in place for place in places)


def require_mounts(
    table: str, wanted: Mapping[str, Any], host_mounts: HostMounts, container: str
) -> None:
    """Refuse a container that has other mounts than `wanted`, the body of its creation."""
    host = wanted["HostConfig"]
    asked = {each["Target"]: not each.get("ReadOnly", False) for each in host["Mounts"]}
    sources = {each["Target"]: each["Source"] for each in host["Mounts"]}
    # /var/tmp is a link to /tmp in the image.
    asked |= {target: True for target in host.get("Tmpfs") or () if target != "/var/tmp"}
    covered = _covered(host)
    try:
        # The last one at a path covers the others.
        found = {each.target: each for each in parse_mounts(table)}
        root = found.pop("/")
    except (IndexError, KeyError) as error:
        raise _differs("the table of mounts", "cannot be read") from error
    if root.writable:
        raise _differs("/", "is writable")
    for target, writable in asked.items():
        if target not in found:
            raise _differs(target, "is missing")
        if found[target].writable and not writable:
            raise _differs(target, "is writable")
    for target in covered:
        if target not in found:
            raise _differs(target, "is not covered")
    written = [source for target, source in sources.items() if asked[target]]
    for target, source in sources.items():
        shown = found[target].device, found[target].root
        if shown != _wanted_at(source, written, host_mounts):
            raise _differs(target, f"is not {source}")
    for target, mount in found.items():
        if target in sources:
            continue
        if host_mounts.has(mount, container) and not _is_harmless(mount):
            raise _differs(target, f"is a file system of the host ({mount.kind})")
        if target in asked or target in covered:
            continue
        usual = any(is_within(target, place) for place in _USUAL)
        if not usual or mount.kind not in _VIRTUAL:
            raise _differs(target, f"was not asked for ({mount.kind})")
        if target in _READ_ONLY and mount.writable:
            raise _differs(target, "is writable")


def _wanted_at(source: str, written: Sequence[str], host_mounts: HostMounts) -> tuple[str, str]:
    """Device, and path in its file system, of what is mounted. An engine follows links, on the host
    and as root; below a folder that a tool writes none is followed here, so it is a difference."""
    holder = min((each for each in written if is_within(source, each)), key=len, default=source)
    device, root = host_mounts.shown_at(holder)
    inside = os.path.relpath(source, holder)
    return device, os.path.normpath(f"{root.rstrip('/')}/{inside}")


def _is_harmless(mount: Mount) -> bool:
    """Files of the host that engines show in every container."""
    if mount.kind in ("cgroup", "cgroup2"):
        return is_within(mount.target, "/sys/fs/cgroup")
    return mount.kind == "devtmpfs" and mount.root == "/null"


def _covered(host: Mapping[str, Any]) -> list[str]:
    """Docker has a list of its own for them, Podman an option."""
    options = [each for each in host["SecurityOpt"] if each.startswith("mask=")]
    named = [path for each in options for path in each.removeprefix("mask=").split(":")]
    return [*(host.get("MaskedPaths") or ()), *named]


def _unescaped(path: str) -> str:
    """The kernel writes white space and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _differs(target: str, how: str) -> Refused:
    return Refused(
        "LIMIT_NOT_ENFORCEABLE",
        f"The container has other mounts than it was asked for: {target} {how}.",
        remedy="The engine does not keep what it is asked for; use another one, or the local"
        " runner. `actum doctor` lists what this one enforces.",
    )
