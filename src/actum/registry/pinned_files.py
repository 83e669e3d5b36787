"""Files of a tool's folder, with exactly the approved bytes.

Each file is read once and compared with the pin itself, so that a file swapped between the check
of the folder and its use is a refusal, not another program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.errors import Refused
from actum.registry.model import Entry, Pin

#: Most bytes that one tool may bring; they are copied into every sandbox.
MAX_BYTES = 8 * 1_048_576


def pinned_files(entry: Entry, below: str) -> Mapping[str, bytes]:
    """Path below the folder `below` of the tool -> content. Empty if there is no such folder."""
    prefix = f"{below.strip('/')}/"
    listed = tuple(
        (path, sha256.removesuffix("+x"))
        for path, sha256 in sorted(entry.pin.files.items())
        if path.startswith(prefix)
    )
    try:
        found = _read(entry.tool.folder, listed)
    except _Changed as error:
        raise _changed(entry.pin) from error
    size = sum(map(len, found.values()))
    if size > MAX_BYTES:
        raise Refused(
            "PACKAGES_TOO_LARGE",
            f"The folder {below} of {entry.tool.name} has {size} bytes; at most {MAX_BYTES} are "
            "copied into a sandbox.",
            remedy="Move the packages elsewhere in the project and set `packages.path` of the "
            "tool.yaml.",
        )
    return {path.removeprefix(prefix): content for path, content in found.items()}


class _Changed(Exception):
    """A file differs from the approved one."""


@lru_cache(maxsize=32)
def _read(folder: str, listed: tuple[tuple[str, str], ...]) -> Mapping[str, bytes]:
    """Cached by content: equal digests mean equal bytes, whatever the folder holds by now."""
    found: dict[str, bytes] = {}
    size = 0
    for path, sha256 in listed:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(Path(folder, path), flags), "rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise _Changed(path) from error
        size += len(content)
        if size > MAX_BYTES:
            found[path] = content
            return found
        if sha256_bytes(content) != sha256:
            raise _Changed(path)
        found[path] = content
    return found


def _changed(pin: Pin) -> Refused:
    return Refused(
        "TOOL_CHANGED",
        f"A file of {pin.name} ({pin.tool_id}) was changed while it was being read.",
        remedy="Undo the change, or review it and approve the tool again.",
    )
