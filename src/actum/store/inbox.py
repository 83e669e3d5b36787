"""Calls that wait for a person's decision: `.actum/inbox/<sha256>`, each named by its own digest.

A decision is bound to that digest, so a file that was changed is not shown as the call. The bytes
of a request are here only while a decision about it can be made or used; nothing here is evidence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.errors import EvidenceUnavailable
from actum.store.whole_file import write_whole

_NAME = re.compile(r"[0-9a-f]{64}")


class Inbox:
    def __init__(self, home: Path) -> None:
        self._folder = home / "inbox"

    def put(self, sha256: str, content: bytes) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_whole(self._folder / sha256, content, synced=False)
        except OSError as error:
            raise EvidenceUnavailable(
                f"The call cannot be kept in {self._folder}: {error.strerror}."
            ) from error

    def get(self, sha256: str) -> bytes | None:
        """The call of this digest; ``None`` if it is missing or was changed."""
        if not _NAME.fullmatch(sha256):
            return None
        try:
            content = (self._folder / sha256).read_bytes()
        except OSError:
            return None
        return content if sha256_bytes(content) == sha256 else None

    def names(self) -> tuple[str, ...]:
        try:
            return tuple(os.listdir(self._folder))
        except OSError:
            return ()

    def keep_only(self, wanted: Collection[str]) -> None:
        """Remove every other call."""
        for name in self.names():
            # Other names are files being written, or left by a process that died.
            if name not in wanted and _NAME.fullmatch(name):
                (self._folder / name).unlink(missing_ok=True)
