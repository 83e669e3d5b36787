"""The mounts of a container as the kernel has them, compared with what the engine was asked for.

The init reads its own table of mounts before a process of the tool exists. Files of the host that a
tool may see are judged one by one, so one mount more, or one that is writable, is a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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

    target: str
    kind: str
    writable: bool


def parse_mounts(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        options = {*fields[5].split(","), *rest[2].split(",")}
        yield Mount(target=_unescaped(fields[4]), kind=rest[0], writable="ro" not in options)


def require_mounts(table: str, wanted: Mapping[str, Any]) -> None:
    """Refuse a container that has other mounts than `wanted`, the body of its creation."""
    host = wanted["HostConfig"]
    asked = {each["Target"]: not each.get("ReadOnly", False) for each in host["Mounts"]}
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
    for target, mount in found.items():
        if target in asked or target in covered:
            continue
        usual = any(is_within(target, place) for place in _USUAL)
        if not usual or mount.kind not in _VIRTUAL:
            raise _differs(target, f"was not asked for ({mount.kind})")
        if target in _READ_ONLY and mount.writable:
            raise _differs(target, "is writable")


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
