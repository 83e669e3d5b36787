#!/usr/bin/python3 -I
"""Run a command with this checkout reachable for every user, wherever it is.

    scripts/reach.py COMMAND [ARGUMENT...]

A checkout in a directory that others may not enter (as `mktemp -d` makes, or /root) is shown in an
open directory of the same name, in a mount namespace of this command. Nothing changes for other
processes. Without root, or if no directory is closed, the command just runs.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x20000, 4096, 16384, 1 << 18, 2


def reach(folder: Path = ROOT) -> None:
    """Make `folder` reachable for everyone, as seen by this process and its children."""
    closed = [
        step for step in (folder, *folder.parents) if not stat.S_IMODE(step.stat().st_mode) & 0o001
    ]
    if not closed or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int, what: str) -> None:
        if result:
            raise OSError(ctypes.get_errno(), what)

    def mount(source: Path | str, target: Path | str, kind: str, flags: int, data: str) -> None:
        words = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
        result = libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None)
        checked(result, f"mount on {target}")

    # Files written at the top level must exist, or they would be written into the cover.
    (folder / "build").mkdir(exist_ok=True)
    checked(libc.unshare(_CLONE_NEWNS), "unshare")
    mount("", "/", "", _MS_REC | _MS_PRIVATE, "")
    aside = Path(tempfile.mkdtemp(prefix="actum-reach-", dir="/run"))
    mount(folder, aside, "", _MS_BIND | _MS_REC, "")
    mount("tmpfs", closed[-1], "tmpfs", 0, "mode=755")
    folder.mkdir(parents=True, exist_ok=True)
    # Entry by entry: bound as a whole, the folder would be as closed as before.
    for entry in aside.iterdir():
        target = folder / entry.name
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry))
            continue
        target.mkdir() if entry.is_dir() else target.touch()
        mount(entry, target, "", _MS_BIND | _MS_REC, "")
    checked(libc.umount2(os.fsencode(aside), _MNT_DETACH), f"umount {aside}")
    aside.rmdir()
    os.chdir(folder)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    reach()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
