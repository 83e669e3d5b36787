"""A mount namespace of one process: no other process sees its mounts, and they end with it.

Entered once, by a process with a single thread. Root needs a mount namespace; an ordinary user also
needs a user namespace around it, with the same user id inside. A killed process leaves no mount,
because the kernel removes a namespace with its last process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache

from actum import kernel
from actum.sandbox.identity import TOOL_ID

#: Ids end below this one: 2^32 - 1 is the kernel's invalid id.
_ALL_IDS = (1 << 32) - 1


def enter() -> None:
    """Unshare: from here on, mounts of this process are private."""
    if os.geteuid() == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Slave, not private: a later unmount on the host also applies here, so nothing stays busy.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)


@cache
def tool_view(uid: int, gid: int) -> int:
    """A user namespace for idmapped mounts, in which the files of `uid` and `gid` are the tool's.

    The tool's id and the owner's are swapped, all others stay: the overlay itself works as root and
    needs a mapped id on the upper layer, or it could not even make its work folder. Made once per
    process.
    """
    uids, gids = (
        "".join(f"{disk} {seen} {count}\n" for disk, seen, count in _swap(owner))
        for owner in (uid, gid)
    )
    return kernel.mapping_namespace(uids, gids)


def _swap(owner: int) -> Iterator[tuple[int, int, int]]:
    """(id on the disk, id as seen, how many): all ids, `owner` and the tool's exchanged."""
    if owner == TOOL_ID:
        yield 0, 0, _ALL_IDS
        return
    low, high = sorted((owner, TOOL_ID))
    if low:
        yield 0, 0, low
    yield low, high, 1
    if high - low > 1:
        yield low + 1, low + 1, high - low - 1
    yield high, low, 1
    yield high + 1, high + 1, _ALL_IDS - high - 1


def seen_owner(owner: tuple[int, int], top: os.stat_result) -> tuple[int, int]:
    """The owner of a file in a view of the workspace `top`. Applied twice, the original owner.

    As root the sandbox's unmapped user and the owner of the workspace are swapped. An ordinary user
    is the same on both sides.
    """
    if os.geteuid() != 0:
        return owner
    uid, gid = owner
    return (
        {TOOL_ID: top.st_uid, top.st_uid: TOOL_ID}.get(uid, uid),
        {TOOL_ID: top.st_gid, top.st_gid: TOOL_ID}.get(gid, gid),
    )


def attach(source: str, target: str) -> None:
    """Bind-mount the folder `source`, without the mounts below it, at `target`."""
    tree = cloned(source)
    try:
        kernel.move_mount(tree, target)
    finally:
        os.close(tree)


def attach_read_only(source: str, target: str, *, view: int = -1) -> None:
    """As `attach`, so that nothing can be changed through `target`, by any user.

    `view` is a user namespace (`tool_view`) whose ids the mount shows. The mount is read-only
    before it is attached: `source` can never be written through it.
    """
    tree = cloned(source)
    try:
        attributes = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
        kernel.mount_setattr(tree, attributes, recursive=False)
        if view >= 0:
            kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, userns=view, recursive=False)
        kernel.move_mount(tree, target)
    finally:
        os.close(tree)


def cloned(source: str, *, recursive: bool = False) -> int:
    """A detached copy of the mount of a folder; `recursive`: with the mounts below it."""
    descriptor = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return kernel.clone_tree(descriptor, recursive=recursive)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def standing_in(folder: str) -> Iterator[None]:
    """Change the working directory. Mount options cannot hold every character of a path, so they
    name folders relative to it."""
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
