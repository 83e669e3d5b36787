"""The engines: programs that they need, how each is started, and where it puts its groups."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

KINDS = ("docker", "podman")

#: Programs, each from the Debian package of the second name.
PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "docker": {"dockerd": "docker.io", "runc": "runc", "iptables": "iptables", "ip": "iproute2"},
    "podman": {"podman": "podman", "crun": "crun", "conmon": "conmon", "ip": "iproute2"},
}

#: Debian keeps daemons where an ordinary user's PATH does not reach.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

#: Folders of /run that an engine writes to, whatever its options say: it gets its own.
OWN_RUN = (
    *("containerd", "containers", "crun", "docker", "docker.sock", "libpod", "netns", "podman"),
    *("runc", "runsc", "user"),
)

_CONTAINERS_CONF = """\
[containers]
# Without CAP_SYS_RESOURCE root raises no limit above its own.
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
"""
_POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'


def missing(kind: str) -> list[str]:
    """Debian packages whose programs this host lacks."""
    return sorted(
        {package for name, package in PROGRAMS[kind].items() if not shutil.which(name, path=PATH)}
    )


def socket_of(folder: Path) -> Path:
    return folder / "engine.sock"


def group_of(folder: Path) -> str:
    """The control group that holds all containers of a Docker engine."""
    return f"actum-{folder.name}"


def command(kind: str, folder: Path) -> list[str]:
    """The engine's daemon, in the foreground."""
    if kind == "docker":
        return [
            "dockerd",
            *("--host", f"unix://{socket_of(folder)}"),
            *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
            *("--pidfile", str(folder / "pid"), "--config-file", str(folder / "daemon.json")),
            *("--group", "root", "--storage-driver", "overlay2"),
            *("--exec-opt", "native.cgroupdriver=cgroupfs"),
            *("--cgroup-parent", f"/{group_of(folder)}"),
        ]
    return [
        *("podman", "--root", str(folder / "data"), "--runroot", str(folder / "exec")),
        *("--tmpdir", str(folder / "tmp"), "--storage-driver", "overlay", "--log-level", "warn"),
        *("system", "service", "--time", "0", f"unix://{socket_of(folder)}"),
    ]


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": PATH,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TMPDIR": str(folder / "tmp"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def write_settings(folder: Path) -> None:
    """No file of the host's /etc decides: its own settings, and no registry."""
    for name in ("data", "exec", "tmp"):
        (folder / name).mkdir(mode=0o711, exist_ok=True)
    (folder / "daemon.json").write_text("{}\n")
    (folder / "containers.conf").write_text(_CONTAINERS_CONF)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/data"\nrunroot = "{folder}/exec"\n'
    )
    policy = folder / ".config" / "containers" / "policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(_POLICY)
    (policy.parent / "registries.conf").write_text("unqualified-search-registries = []\n")


def containers_on_disk(kind: str, folder: Path) -> set[str]:
    """Ids of the containers that the engine's folder knows."""
    place = folder / "data" / ("containers" if kind == "docker" else "overlay-containers")
    try:
        return {name for name in os.listdir(place) if len(name) == 64}
    except FileNotFoundError:
        return set()
