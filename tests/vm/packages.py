"""Debian packages by name, unpacked into a cache of this repository; nothing gets installed."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CACHE = REPOSITORY / "build" / "vm"
ROOT = CACHE / "root"  #: all packages together, as if it were /
_LISTS = CACHE / "lists"
_MARKS = CACHE / "unpacked"
_DOWNLOAD_S = 300


def unpack(*names: str) -> Path:
    """Have these packages below `ROOT`. The first time it takes seconds, later it is a look."""
    with _alone():
        missing = [name for name in names if not (_MARKS / name).exists()]
        if missing:
            _fetch(missing)
    return ROOT


def unpack_with_dependencies(name: str) -> Path:
    """Also what it depends on and this system lacks."""
    with _alone():
        done = _MARKS / f"{name}+dependencies"
        if not done.exists():
            _refresh()
            plan = _apt("apt-get", "install", "--simulate", "--no-install-recommends", name)
            names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
            _fetch([each for each in names if not (_MARKS / each).exists()])
            done.touch()
    return ROOT


def current_kernel(flavour: str) -> str:
    """The package that holds the kernel itself: linux-image-FLAVOUR only points to it."""
    pinned = CACHE / f"kernel-{flavour}"
    with _alone():
        if not pinned.exists():
            _refresh()
            for line in _apt("apt-cache", "depends", f"linux-image-{flavour}").splitlines():
                if line.strip().startswith("Depends: linux-image-"):
                    pinned.write_text(line.split()[1])
        return pinned.read_text()


@contextmanager
def _alone() -> Iterator[None]:
    """Test processes run side by side; one of them fetches."""
    _MARKS.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(names: list[str]) -> None:
    _refresh()
    with tempfile.TemporaryDirectory(dir=CACHE) as archives:
        _apt("apt-get", "download", *names, cwd=Path(archives))
        for archive in Path(archives).iterdir():
            subprocess.run(["dpkg", "-x", archive, ROOT], check=True, timeout=_DOWNLOAD_S)
    for name in names:
        (_MARKS / name).touch()


def _refresh() -> None:
    """The package lists, in a place of our own: no right is needed, and the system's stay."""
    if not _LISTS.exists():
        (_LISTS / "partial").mkdir(parents=True)
        _apt("apt-get", "update")


def _apt(*command: str, cwd: Path = CACHE) -> str:
    options = ["-qq", "-o", f"Dir::State::lists={_LISTS}", "-o", "APT::Sandbox::User=root"]
    return subprocess.run(
        [command[0], *options, *command[1:]],
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=_DOWNLOAD_S,
    ).stdout
