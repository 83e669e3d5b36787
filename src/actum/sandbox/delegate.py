"""Give an ordinary user a cgroup subtree of their own, so that limits can be enforced for them.

Done once per boot by root. The user can then make groups below it, and nowhere else; root still
owns the limits of the subtree itself. In version 2 the user's processes must be in it as well, so
their shell is moved there, and everything started from it is too.
"""

from __future__ import annotations

import errno
import os

from actum.errors import Refused
from actum.sandbox import cgroup_v1, cgroup_v2
from actum.sandbox.cgroup import PARENT, CgroupsUnavailable, Layout, sweep_folder, write

#: Files that a delegatee may write (the kernel's own list); no limits.
_HANDED_OVER = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


def delegate(uid: int, gid: int, pid: int | None = None) -> tuple[str, ...]:
    """Make the directories and change their owner; returns them. `pid` is moved in (version 2)."""
    layout = _layout()
    try:
        if layout.version() == 1:
            return _delegate_v1(layout, uid, gid)
        return _delegate_v2(layout, uid, gid, pid)
    except OSError as error:
        raise Refused(
            "DELEGATION_IMPOSSIBLE",
            f"{error.filename}: {error.strerror}.",
            remedy="Run it as root, on the host itself or where /sys/fs/cgroup is writable.",
        ) from error


def needs_pid() -> bool:
    """Whether a user's processes must be in the subtree to use it."""
    return _layout().version() == 2


def revoke(uid: int) -> None:
    """Remove the subtree; refused while a sandbox of the user runs in it."""
    layout = _layout()
    try:
        if layout.version() == 1:
            _revoke_v1(layout, uid)
        else:
            _revoke_v2(layout, uid)
    except OSError as error:
        busy = error.errno in (errno.EBUSY, errno.ENOTEMPTY)
        raise Refused(
            "DELEGATION_IN_USE" if busy else "DELEGATION_IMPOSSIBLE",
            f"{error.filename}: {error.strerror}.",
            remedy="End that user's Actum processes, and run this as root.",
        ) from error


def _layout() -> Layout:
    layout = Layout.of_host()
    try:
        layout.version()
    except CgroupsUnavailable as error:
        raise Refused(
            "DELEGATION_IMPOSSIBLE", f"{error}.", remedy=f"Remedy: {error.remedy}."
        ) from error
    return layout


def _delegate_v1(layout: Layout, uid: int, gid: int) -> tuple[str, ...]:
    folders = tuple(dict.fromkeys(cgroup_v1.Hierarchies.of(layout).parents(uid).values()))
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        # Only the directory: root still owns its limit files, so the user cannot raise them.
        os.chown(folder, uid, gid)
    return folders


def _delegate_v2(layout: Layout, uid: int, gid: int, pid: int | None) -> tuple[str, ...]:
    if not cgroup_v2.is_true_root(layout.v2):
        raise Refused(
            "DELEGATION_IMPOSSIBLE",
            "This is a container: its processes share one group with others.",
            remedy="Run it on the host itself.",
        )
    top = f"{cgroup_v2.make_parent(layout.v2)}/uid-{uid}"
    leaf = f"{top}/{cgroup_v2.LEAF}"
    os.makedirs(leaf, exist_ok=True)
    cgroup_v2.hand_down(top)
    for folder in (top, leaf):
        os.chown(folder, uid, gid)
        for name in _HANDED_OVER:
            os.chown(f"{folder}/{name}", uid, gid)
    if pid is not None:
        write(f"{leaf}/cgroup.procs", pid)
    return (top,)


def _revoke_v1(layout: Layout, uid: int) -> None:
    folders = dict.fromkeys(cgroup_v1.Hierarchies.of(layout).parents(uid).values())
    # After an interrupted attempt some of them may be gone already.
    there = [folder for folder in folders if os.path.isdir(folder)]
    if not there:
        raise _nothing(uid)
    for folder in there:
        sweep_folder(folder)
        os.rmdir(folder)


def _revoke_v2(layout: Layout, uid: int) -> None:
    top = f"{layout.v2}/{PARENT}/uid-{uid}"
    leaf = f"{top}/{cgroup_v2.LEAF}"
    if not os.path.isdir(top):
        raise _nothing(uid)
    sweep_folder(top)
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != cgroup_v2.LEAF:
                raise OSError(errno.EBUSY, "a sandbox is still there", entry.path)
    # The shells go on in the root group: their original group is not recorded.
    cgroup_v2.move_processes(leaf, layout.v2)
    os.rmdir(leaf)
    os.rmdir(top)


def _nothing(uid: int) -> Refused:
    return Refused(
        "DELEGATION_MISSING",
        f"There is no cgroup subtree of uid {uid}.",
        remedy="A reboot removes it too; `actum host delegate` makes one.",
    )
