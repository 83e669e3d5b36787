"""A host whose mounts propagate, as those of systemd do.

It grants a folder, and mounts something below it while the tool runs. test_later_mounts.py starts
it, because its mount namespace is its own.

It prints what the tool found before and after, and what a second sandbox finds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from actum import kernel
from actum.sandbox.spawner_client import Spawner
from hostile.member import asked, carried_out, finished, granted, spawner

_SHARED = 1 << 20  # MS_SHARED
_LOOK = "cd {0}; ls below; grep -c ' {0}/below ' /proc/self/mountinfo"


def _own_mounts() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(text)
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)


def _tmpfs(folder: Path) -> None:
    kernel.mount("tmpfs", str(folder), "tmpfs", 0, "mode=755")


def _while_it_runs(started: Spawner, folder: Path, *, write: bool) -> dict[str, str]:
    look, below = _LOOK.format(folder), folder / "below"
    script = f"{look}; echo and; read -r word < {folder}/way; {look}"
    grants = [granted(folder, write=write)]
    sandbox, cgroup = started.launch(asked(script, grants=grants), _OWNER, b"")
    try:
        sandbox.go()
        with (folder / "way").open("w") as way:  # opens when the tool has opened it
            _tmpfs(below)
            (below / "arrived").touch()
            way.write("now\n")
        _report, first = finished(sandbox)
    finally:
        sandbox.discard()
        cgroup.remove()
    _report, second = carried_out(started, asked(look, grants=grants))
    kernel.umount_detach(str(below))
    return {"first": first, "second": second}


_OWNER = (os.getuid(), os.getgid())


def main(folder: Path) -> None:
    _own_mounts()
    _tmpfs(folder)
    kernel.mount("", str(folder), "", _SHARED)
    (folder / "below").mkdir()
    (folder / "below/hidden").touch()
    os.mkfifo(folder / "way")
    with spawner() as started:
        found = [_while_it_runs(started, folder, write=write) for write in (False, True)]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
