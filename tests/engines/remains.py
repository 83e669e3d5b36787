"""Finding and removing what an engine has left: processes, control groups, mounts, its folder.

An engine is recognised by the marker in its own /run and by the ids of its containers, never by
the name of a program: other engines run on the same host.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from engines import kinds

#: In the engine's own /run; holds the path of its data folder.
MARKER = "actum-engine"
_GROUPS = Path("/sys/fs/cgroup")


def identity(pid: int) -> str:
    """A process, also after its number was given to another one. Empty: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if stat[0] in ("Z", "X"):
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{pid}-{stat[19]}-{boot[:8]}"


def processes(kind: str, folder: Path) -> set[int]:
    """Processes of the engine and of its containers, as this host sees them."""
    ids = kinds.containers_on_disk(kind, folder) | _containers_of_groups(kind, folder)
    return {pid for pid in _all() if pid != os.getpid() and _belongs(pid, folder, ids)}


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _belongs(pid: int, folder: Path, ids: set[str]) -> bool:
    try:
        if Path(f"/proc/{pid}/root/run/{MARKER}").read_text() == str(folder):
            return True
    except OSError:  # it has ended, or has another root
        pass
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return f"/{kinds.group_of(folder)}/" in groups or any(each in groups for each in ids)


def _containers_of_groups(kind: str, folder: Path) -> set[str]:
    if kind != "docker":
        return set()
    found = set()
    for group in _groups(kind, folder, set()):
        found |= {child.name for child in group.iterdir() if len(child.name) == 64}
    return found


def _groups(kind: str, folder: Path, ids: set[str]) -> Iterator[Path]:
    """The topmost groups of the engine in every hierarchy."""
    for hierarchy in sorted(_GROUPS.iterdir()):
        if kind == "docker":
            candidates = [hierarchy / kinds.group_of(folder)]
        elif hierarchy.name == "unified":
            continue  # covered in the engine's view
        else:
            candidates = [hierarchy / "libpod_parent" / f"libpod-{each}" for each in ids]
            candidates += [hierarchy / "libpod_parent" / f"libpod-conmon-{each}" for each in ids]
        yield from (path for path in candidates if path.is_dir())


def groups(kind: str, folder: Path, ids: set[str] | None = None) -> list[str]:
    known = kinds.containers_on_disk(kind, folder) if ids is None else ids
    return [str(path) for path in _groups(kind, folder, known)]


def mounts(folder: Path, table: str = "/proc/self/mounts") -> list[str]:
    """Mounts below the folder in this mount namespace, the last one first."""
    with open(table, encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def clear(kind: str, folder: Path) -> None:
    """End every process, then remove groups, mounts and the folder. Nothing is asked politely:
    whatever the engine would write is removed."""
    ids = kinds.containers_on_disk(kind, folder)
    _kill_all(kind, folder)
    _remove_groups(kind, folder, ids)
    for point in mounts(folder):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    if left := mounts(folder):
        raise RuntimeError(f"{folder}: still mounted, so it is not removed: {left}")
    subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)


def _kill_all(kind: str, folder: Path) -> None:
    until = time.monotonic() + 20
    while found := processes(kind, folder):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        collect_ended()
        if time.monotonic() > until:
            raise RuntimeError(f"{folder}: processes that cannot be ended: {sorted(found)}")
        time.sleep(0.01)


def collect_ended() -> None:
    """Children that this process inherited as their subreaper, and that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def _remove_groups(kind: str, folder: Path, ids: set[str]) -> None:
    until = time.monotonic() + 10
    while found := list(_groups(kind, folder, ids)):
        for top in found:
            _remove_group(top)
        if time.monotonic() > until:
            raise RuntimeError(f"{folder}: groups that cannot be removed: {found}")
        time.sleep(0.01)
    if kind == "podman":
        # Shared by all engines that use cgroupfs: the kernel keeps it while another one needs it.
        for hierarchy in _GROUPS.iterdir():
            _remove_group(hierarchy / "libpod_parent" / "conmon")
            _remove_group(hierarchy / "libpod_parent")


def _remove_group(top: Path) -> None:
    for path, _names, _files in os.walk(top, topdown=False):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
                raise
