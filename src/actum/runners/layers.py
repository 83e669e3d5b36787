"""Where a file of a granted folder is, while its changes are still in layers of their own."""

from __future__ import annotations

import errno
import os
import stat

from actum.contract.call import Plan
from actum.contract.levels import is_within

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


def place_of(plan: Plan, path: str) -> tuple[str, str] | None:
    """(folder, path in it) of what a tool has left at `path`; ``None`` if it left nothing there.

    Only when no process of the tool is left: names are looked at one by one.
    """
    grant = next((grant for grant in plan.layers if is_within(path, grant)), None)
    if grant is None:
        return None
    inside = os.path.relpath(path, grant)
    upper = f"{plan.layers[grant]}/upper"
    above = upper
    shows = True  # whether the granted folder shows where the upper layer holds nothing
    for name in inside.split("/"):
        shows = shows and not is_opaque(above)
        above = f"{above}/{name}"
        try:
            look = os.lstat(above)
        except (FileNotFoundError, NotADirectoryError):
            return (grant, inside) if shows else None
        if stat.S_ISCHR(look.st_mode) and look.st_rdev == 0:
            return None  # a whiteout: removed
        if not stat.S_ISDIR(look.st_mode):
            break
    return upper, inside


def is_opaque(folder: str | int) -> bool:
    """Whether a folder of an upper layer hides what the folder below it holds.

    An ordinary user's overlay has only marks of the second kind. A tool cannot set one: the kernel
    stores such a mark of a tool under another name, or refuses it.
    """
    for mark in _OPAQUE[os.geteuid() != 0 :]:
        try:
            return os.getxattr(folder, mark) == b"y"
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise
    return False
