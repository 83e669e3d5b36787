"""Work items on a disk that is full except for some bytes. One JSON line for each number of bytes.

    unshare --mount --propagation private python -m strikes.full_disk FOLDER ENGINE BYTES...

Root only. The project lies on a small tmpfs that only this mount namespace has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .lab import ITEM_RUN, Kind, Lab

_DISK_BYTES = 64 << 20
_KIND = Kind(ITEM_RUN, exclusive=False)


def main() -> None:
    folder, engine = Path(sys.argv[1]), sys.argv[2]
    disk = folder / "disk"
    disk.mkdir()
    options = f"size={_DISK_BYTES},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=True)
    lab = Lab(folder, engine, place=disk / "project")
    try:
        for number, left in enumerate(map(int, sys.argv[3:])):
            print(json.dumps(_trial(lab, disk, left, with_next=number % 5 == 0)), flush=True)
    finally:
        lab.close()


def _trial(lab: Lab, disk: Path, left: int, *, with_next: bool) -> dict[str, Any]:
    unharmed = lab.unharmed(_KIND)
    lab.restore(unharmed.template)
    filler = disk / "filler"
    room = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - left))
    ended = lab.start(unharmed.words, None)
    filler.unlink()
    committed, wrong = lab.judge(_KIND, ended)
    if not wrong and with_next:
        wrong = lab.runs_next()
    return {"left": left, "committed": bool(committed), "wrong": wrong, "said": ended.said[-500:]}


if __name__ == "__main__":
    main()
