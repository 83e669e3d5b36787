"""Requires a home on a local disk: a run is claimed by locks that a network file system keeps only
for the processes of one machine, if at all, and SQLite's write-ahead log needs shared memory.

FUSE has one magic number for all its file systems. Those that are known to be local are permitted
by their name, all others refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from actum import kernel
from actum.errors import Refused

FUSE = 0x65735546
#: statfs(2): f_type of network and cluster file systems -> the name for people.
NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x01021997: "9p",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "kAFS",
    0x0BD00BD0: "Lustre",
    0x73757245: "Coda",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x47504653: "GPFS",
    0x564C: "NCP",
    0xAAD7AAEA: "PanFS",
    0x19830326: "BeeGFS",
    0x013111A8: "IBRIX",
    0x786F4256: "vboxsf",
    0xBACBACBC: "vmhgfs",
}
#: Of /proc/self/mountinfo: on a disk of this machine.
LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs"})


def not_local(magic: int, mounted_as: str) -> str | None:
    """The name of a file system that is not known to be on a disk of this machine; ``None`` for one
    that is. `mounted_as` is its type in mountinfo."""
    if magic == FUSE:
        return None if mounted_as in LOCAL_FUSE else mounted_as
    return NETWORK.get(magic & 0xFFFFFFFF)


def require_local_disk(home: Path) -> None:
    """Raise `Refused` if the home is on a network file system."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        magic = kernel.file_system_type(descriptor)
        found = not_local(magic, _mounted_as(descriptor) if magic == FUSE else "")
    finally:
        os.close(descriptor)
    if found is None:
        return
    raise Refused(
        "RUNS_NEED_LOCAL_DISK",
        f"{home} is not known to be on a disk of this machine ({found}), and durable runs are for"
        " one machine: on a network file system their locks would not hold.",
        remedy="Nothing was changed. Put the project on a local disk, or name a home on one with"
        " --home DIR.",
    )


def _mounted_as(descriptor: int) -> str:
    """The type of the mount of a descriptor, by the mount's id."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        ids = [line.split()[1] for line in file if line.startswith("mnt_id:")]
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            words = line.split()
            if words[0] == ids[0]:
                return words[words.index("-") + 1]
    return "fuse"  # of a mount namespace that this process has left
