"""Collected files, addressed by their BLAKE3: `.actum/evidence/<first two>/<all 64>`.

A file appears under its name only when all of it is on the disk. The same content is stored once.
What is read is checked on the way out, so that a changed file is never handed on as evidence.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from actum.contract.canonical import blake3_bytes
from actum.errors import EvidenceUnavailable, VerificationFailed

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.root = Path(home) / "evidence"

    def prepare(self) -> None:
        """Make sure that files could be kept now; raises before anything depends on it."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_keep(self.root, error) from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise _cannot_keep(self.root, PermissionError(13, "Permission denied"))

    def path(self, blake3: str) -> Path:
        # A digest comes out of documents that others may have edited: it must not climb out.
        if not _NAME.fullmatch(blake3):
            raise VerificationFailed(f"{blake3[:80]!r} is not a BLAKE3 digest of 64 hex digits.")
        return self.root / blake3[:2] / blake3

    def put(self, content: bytes) -> str:
        """Keep `content` durably and return its address. A damaged copy is replaced."""
        blake3 = blake3_bytes(content)
        path = self.path(blake3)
        try:
            if not _holds(path, blake3):
                _write(path, content)
        except OSError as error:
            raise _cannot_keep(path, error) from error
        return blake3

    def read(self, blake3: str) -> bytes:
        """The content of an address, proven to be what was stored."""
        path = self.path(blake3)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise VerificationFailed(
                f"The evidence file {path} is missing.", remedy="Restore it from a backup."
            ) from error
        except OSError as error:
            raise EvidenceUnavailable(
                f"The evidence file {path} cannot be read: {error.strerror}.",
                remedy="Check its owner and mode.",
            ) from error
        if blake3_bytes(content) != blake3:
            raise VerificationFailed(
                f"The evidence file {path} does not have the content it was stored with.",
                remedy="Restore it from a backup.",
            )
        return content


def _holds(path: Path, blake3: str) -> bool:
    try:
        return blake3_bytes(path.read_bytes()) == blake3
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes) -> None:
    fresh = not path.parent.is_dir()
    # One by one: a parent that mkdir makes along the way would be open to others.
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)  # 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    # Content before name, name before parent: after a power cut no name has less than its content.
    _sync_directory(path.parent)
    if fresh:
        _sync_directory(path.parent.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_keep(path: Path, error: OSError) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"Evidence cannot be kept at {path}: {error.strerror}.",
        remedy="Free space there, or give the user who runs Actum write access.",
    )
