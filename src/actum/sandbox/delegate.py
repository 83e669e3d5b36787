"""Give an ordinary user a cgroup subtree of their own, so that limits can be enforced for them.

Done once per boot by root. The user can then make groups below it, and nowhere else; the limits
of the subtree itself stay root's.
"""

from __future__ import annotations

import os

from actum.sandbox.cgroup import Hierarchies


def delegate(uid: int, gid: int) -> tuple[str, ...]:
    """Make and hand over one directory per controller; returns them."""
    folders = tuple(dict.fromkeys(Hierarchies.find().parents(uid).values()))
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        # The directory alone: its own limit files stay root's, so the user cannot lift them.
        os.chown(folder, uid, gid)
    return folders


def revoke(uid: int) -> None:
    """Take the subtree back; refused by the kernel while anything of the user's runs in it."""
    for folder in dict.fromkeys(Hierarchies.find().parents(uid).values()):
        os.rmdir(folder)
