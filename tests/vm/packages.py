"""Debian packages by name, unpacked into a cache of this repository; nothing gets installed."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
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
    if _missing(names):
        with _alone():
            _fetch(_missing(names))
    return ROOT


def unpack_with_dependencies(name: str) -> Path:
    """Also what it depends on and this system lacks."""
    done = _MARKS / f"{name}+dependencies"
    if not done.exists():
        with _alone():
            _refresh()
            plan = _apt("apt-get", "install", "--simulate", "--no-install-recommends", name)
            lines = [line.split() for line in plan.splitlines()]
            _fetch(_missing(words[1] for words in lines if words[:1] == ["Inst"]))
            done.touch()
    return ROOT


def current_kernel(flavour: str) -> str:
    """The package that holds the kernel itself: linux-image-FLAVOUR only points to it."""
    pinned = CACHE / f"kernel-{flavour}"
    if not pinned.exists():
        with _alone():
            _refresh()
            for line in _apt("apt-cache", "depends", f"linux-image-{flavour}").splitlines():
                if line.strip().startswith("Depends: linux-image-"):
                    pinned.write_text(line.split()[1])
    return pinned.read_text()


def _missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not (_MARKS / name).exists()]


@contextmanager
def _alone() -> Iterator[None]:
    """Test processes run side by side; one of them fetches."""
    _MARKS.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(names: list[str]) -> None:
    if not names:
        return  # another process was quicker
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
