"""The first file system of an emulated machine, made from nothing but bytes."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TRAILER = "TRAILER!!!"
_FOLDER, _FILE = 0o040755, 0o100755


def cpio(files: dict[str, bytes]) -> bytes:
    """An archive in the form the kernel unpacks ("newc"); every file may be executed."""
    folders = {parent for name in files for parent in _parents(name)}
    archive = b"".join(
        _entry(number, name, _FOLDER if name in folders else _FILE, files.get(name, b""))
        for number, name in enumerate([*sorted(folders), *files], 1)
    )
    return archive + _entry(0, _TRAILER, 0, b"")


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def modules_in_order(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """These kernel modules, each after what it depends on; what is built in is left out."""
    known = {path.name.removesuffix(".ko").replace("-", "_"): path for path in folder.rglob("*.ko")}
    order: list[Path] = []

    def add(name: str) -> None:
        path = known.get(name)
        if path is None or path in order:
            return
        for dependency in _dependencies(path):
            add(dependency)
        order.append(path)

    for name in names:
        add(name)
    return order


def _dependencies(module: Path) -> list[str]:
    """From the module itself; the package's index is only made when it is installed."""
    text = module.read_bytes()
    found = [
        name.replace("-", "_")
        for pattern in (rb"\0depends=([^\0]*)\0", rb"\0softdep=pre: ([^\0]*)\0")
        for match in re.finditer(pattern, text)
        for name in re.split(r"[,\s]+", os.fsdecode(match[1]))
    ]
    return [name for name in found if name]
