"""Raw output, stored only as long as its session: `.actum/session/<session>/<execution_id>/`.

This is the only place with the exact bytes of stdout and stderr on the disk. Nothing here is
synced, because nothing here is evidence; `end` removes all of a session.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from actum import removal
from actum.errors import EvidenceUnavailable, Refused

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class SessionStore:
    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.root = Path(home) / "session"

    def put(self, session: str, execution_id: str, stdout: bytes, stderr: bytes) -> None:
        """Store the streams of one execution; a later attempt replaces an earlier one."""
        directory = self._directory(session, execution_id)
        try:
            try:
                self._put(directory, stdout, stderr)
            except FileNotFoundError:
                # `end_if_empty` has removed the folder of a long unused session just now.
                self._put(directory, stdout, stderr)
        except OSError as error:
            raise _failed(directory, error) from error

    def _put(self, directory: Path, stdout: bytes, stderr: bytes) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _write(directory / "stdout", stdout)
        _write(directory / "stderr", stderr)

    def get(self, session: str, execution_id: str) -> tuple[bytes, bytes] | None:
        """Both streams, or ``None`` when the session is over or never had them."""
        directory = self._directory(session, execution_id)
        try:
            return (directory / "stdout").read_bytes(), (directory / "stderr").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(directory, error) from error

    def names(self) -> tuple[str, ...]:
        """The sessions that have stored output."""
        try:
            return tuple(sorted(name for name in os.listdir(self.root) if _NAME.fullmatch(name)))
        except FileNotFoundError:
            return ()

    def end(self, session: str) -> None:
        """Remove all output of the session. Ending a session twice is allowed."""
        directory = self.root / _checked("session", session)
        if not directory.exists():
            return
        try:
            _adopt(directory)
            gone = removal.remove(directory)
        except OSError as error:
            raise _failed(directory, error) from error
        if not gone:
            raise _failed(directory, OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)))

    def remove_output(self, session: str, execution_id: str) -> None:
        """Remove the streams of one execution."""
        directory = self._directory(session, execution_id)
        try:
            _adopt(directory.parent)
            removal.remove_part(directory.parent, directory.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(directory, error) from error

    def end_if_empty(self, session: str) -> None:
        """End a session that has no output and no cached result any more."""
        directory = self.root / _checked("session", session)
        with contextlib.suppress(OSError):
            if set(os.listdir(directory)) <= {removal.MARKER}:
                removal.remove(directory)

    def _directory(self, session: str, execution_id: str) -> Path:
        return self.root / _checked("session", session) / _checked("execution_id", execution_id)


def _adopt(directory: Path) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    if not removal.is_removable(directory):
        removal.mark(directory)  # new, or from version 0.1, which wrote no markers


def _checked(field: str, name: str) -> str:
    # Names come from callers: `..`, a slash or a leading dot would reach other sessions' files.
    if not _NAME.fullmatch(name):
        raise Refused(
            "NAME_INVALID",
            f"{field}: {name[:80]!r} cannot name a directory.",
            remedy="Use up to 128 letters, digits, '.', '_' and '-', beginning with a letter or"
            " digit.",
        )
    return name


def _write(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def _failed(directory: Path, error: OSError) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The session's output at {directory} cannot be reached: {error.strerror}.",
        remedy="Free space there, or give the user who runs Actum access.",
    )
