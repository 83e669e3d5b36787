"""An independent listing of a folder. Imports nothing of Actum: it judges what Actum reports."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_LEFT_OUT = {b".actum", b".git"}
_SHOWN = 4  #: differences that are reported one by one
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class Entry(NamedTuple):
    kind: str
    mode: int
    uid: int
    gid: int
    content: str  #: SHA-256 of a file's content; a link's target
    first_name: bytes  #: the smallest of all paths that share the inode; b"" for folders


Listing = Mapping[bytes, Entry]  #: path relative to the top; b"." is the top itself


def take(project: Path) -> Listing:
    """Every path below `project` except the top-level `.actum` and `.git`."""
    if not project.is_dir():
        return {}
    top = os.fsencode(project)
    found: dict[bytes, tuple[os.stat_result, str]] = {b".": (os.lstat(top), "")}
    for path in _paths(top):
        full = top + b"/" + path
        look = os.lstat(full)
        found[path] = (look, _content(full, look))
    names: dict[tuple[int, int], bytes] = {}
    for path in sorted(found):
        look = found[path][0]
        names.setdefault((look.st_dev, look.st_ino), path)
    return {
        path: Entry(
            kind=_KINDS[stat.S_IFMT(look.st_mode)],
            mode=stat.S_IMODE(look.st_mode),
            uid=look.st_uid,
            gid=look.st_gid,
            content=content,
            first_name=b"" if stat.S_ISDIR(look.st_mode) else names[look.st_dev, look.st_ino],
        )
        for path, (look, content) in found.items()
    }


def _paths(top: bytes) -> Iterator[bytes]:
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(top + b"/" + folder) as names:
            for name in names:
                if not folder and name.name in _LEFT_OUT:
                    continue
                path = folder + b"/" + name.name if folder else name.name
                yield path
                if name.is_dir(follow_symlinks=False):
                    waiting.append(path)


def _content(path: bytes, look: os.stat_result) -> str:
    if stat.S_ISLNK(look.st_mode):
        return os.readlink(path).hex()
    if not stat.S_ISREG(look.st_mode):
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path) -> Mapping[str, str]:
    """SHA-256 of every regular file below a folder, by path relative to it."""
    found = {}
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def difference(expected: Listing, found: Listing) -> list[str]:
    """One line for each of the first paths that differ, and a count of the missing paths."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        wanted, there = expected.get(path), found.get(path)
        if wanted != there:
            lines.append(f"{path!r}: expected {wanted}, found {there}")
    missing = len(expected.keys() - found.keys())
    rest = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*([f"{missing} entries are missing"] if missing else []), *lines[:_SHOWN], *rest]


def lost(before: Listing, after: Listing, found: Listing) -> int:
    """How many paths that exist both before and after the command are missing."""
    return len((before.keys() & after.keys()) - found.keys())
