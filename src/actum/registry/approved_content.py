"""The approved bytes of tool folders: `.actum/pinned/<sha256>`, each named by its own digest.

They are stored at an approval, so that `actum tools diff` can show what has changed since. Nothing
runs from here and nothing is permitted by it: a file counts as the approved one only if it has the
digest that the signed lock states. What is missing, too large or changed is shown by its digest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.registry.model import Pin
from actum.store.whole_file import write_whole

#: Larger files are not stored.
MOST_BYTES = 1_048_576
_FOLDER = "pinned"
_NAME = re.compile(r"[0-9a-f]{64}")


class ApprovedContent:
    def __init__(self, home: Path) -> None:
        self.folder = home / _FOLDER

    def keep(self, tool_folder: Path, files: Mapping[str, str]) -> None:
        """Store the files of a folder that still have these digests. Best effort: an approval does
        not depend on it."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for path, digest in files.items():
                sha256 = digest.removesuffix("+x")
                if self.get(sha256) is None:
                    content = content_of(tool_folder / path)
                    if content is not None and sha256_bytes(content) == sha256:
                        write_whole(self.folder / sha256, content, synced=False)

    def get(self, digest: str) -> bytes | None:
        """The content of a digest as a pin has it; ``None`` if it is not stored, or was changed."""
        sha256 = digest.removesuffix("+x")
        if not _NAME.fullmatch(sha256):
            return None
        content = content_of(self.folder / sha256)
        return content if content is not None and sha256_bytes(content) == sha256 else None

    def unpinned(self, pins: Iterable[Pin], before: float) -> tuple[Path, ...]:
        """Files of no pin that were stored before a time."""
        pinned = {digest.removesuffix("+x") for pin in pins for digest in pin.files.values()}
        try:
            names = os.listdir(self.folder)
        except OSError:
            return ()
        paths = (self.folder / name for name in names if name not in pinned)
        return tuple(path for path in paths if _NAME.fullmatch(path.name) and _is_old(path, before))


def _is_old(path: Path, before: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before
    except FileNotFoundError:
        return False


def content_of(path: Path) -> bytes | None:
    """The bytes of a regular file, through no link; ``None`` if it is too large or no such file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= MOST_BYTES else None
