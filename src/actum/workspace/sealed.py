"""Sealed inputs: each input file is copied once, and the copy is digested and read.

The copy is made before an approval is requested. It is digested while it is written, in one pass,
so the digest is of these bytes even if the file changes meanwhile. Copies are stored in the home,
which no tool and no other user can write, and are removed with the execution.

The folder of the file decides how the copy gets to the file's path:

a transaction        the copy is put into the upper layer (`Transaction.begin`), so that a tool that
                     may write can change it like any other file
a read-only folder   the copy is mounted over the path, in a read-only overlay (`views`). The names
                     of an overlay are its own: no rename on the host can detach the mount
written directly     the copy is mounted over the path, read-only. A rename on the host detaches
                     that mount; the init detects it, and the execution fails (INPUT_SEAL_LOST)

A hard link to the file, or another path to it, shows the current file.
Proved by tests/security/sealed_inputs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from actum import kernel, removal
from actum.contract.call import Plan, SealedInput
from actum.contract.levels import is_within
from actum.contract.limits import INPUT_FILES_BYTES
from actum.errors import Refused, Violation
from actum.runners.init_request import readable_folders, writable_folders
from actum.runners.layers import claim, is_claimed, make_layers
from actum.workspace.copies import dress, own

_CHUNK = 1 << 20


class SealedInputs:
    """The sealed inputs of one execution: made at the first `seal`, removed by `close`."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder: Path | None = None
        self._sealed: dict[str, SealedInput] = {}
        self._views: dict[str, str] = {}
        self._files = 0  #: copies that were begun
        self._held_bytes = 0

    def seal(self, paths: Iterable[str]) -> tuple[SealedInput, ...]:
        """Seal the files at these paths, each once. A sealed file is not read again: every decision
        about one execution is about the same bytes."""
        wanted = tuple(dict.fromkeys(paths))
        for path in wanted:
            if path not in self._sealed:
                self._sealed[path] = self._copied(path)
        return tuple(self._sealed[path] for path in wanted)

    def views(self, plan: Plan) -> Mapping[str, str]:
        """Read-only folders that hold sealed inputs of a plan, and the layers for an overlay over
        each.

        Left out are a folder with a mount in it, which an overlay would not show; the folder of the
        program, whose identity an overlay would hide; and a folder of another owner than the one
        whose files are shown as the tool's.
        """
        writable = writable_folders(plan.policy)
        paths = [
            each.path
            for each in plan.sealed
            if not any(is_within(each.path, folder) for folder in writable)
        ]
        folders = [
            folder
            for folder in readable_folders(plan.policy)
            if any(path != folder and is_within(path, folder) for path in paths)
            and not is_within(plan.proof.executable.path, folder)
            and _owner(folder) == _owner((*writable, folder)[0])
        ]
        if not folders:
            return {}
        mounts = kernel.mount_points()
        found: dict[str, str] = {}
        for folder in folders:
            if any(mount != folder and is_within(mount, folder) for mount in mounts):
                continue
            if folder not in self._views:
                layers = self._made() / f"view-{len(self._views)}"
                make_layers(layers, os.stat(folder, follow_symlinks=False))
                self._views[folder] = str(layers)
            found[folder] = self._views[folder]
        return found

    def close(self) -> None:
        """Remove the copies. If that fails, the next sweep removes them."""
        if self._folder is not None:
            with contextlib.suppress(removal.RemovalRefused, OSError):
                removal.remove(self._folder)
        self._folder = None
        self._sealed.clear()
        self._views.clear()
        self._held_bytes = 0

    def _made(self) -> Path:
        if self._folder is None:
            inputs = Path(self._home) / "inputs"
            inputs.mkdir(mode=0o700, exist_ok=True)
            folder = inputs / os.urandom(8).hex()
            claim(folder)
            self._folder = folder
        return self._folder

    def _copied(self, path: str) -> SealedInput:
        source, look = _opened(path)
        try:
            self._files += 1
            copy = self._made() / str(self._files)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            target = os.open(copy, flags, 0o600)
            try:
                digest = self._read_once(source, target)
                dress(target, look, own(look))
                if os.geteuid() != 0:
                    # The copy of another user's file belongs to this user, who could read the file.
                    os.fchmod(target, look.st_mode & 0o777 | 0o400)
            finally:
                os.close(target)
        except OSError as error:
            raise Refused(
                "INPUT_NOT_SEALED",
                f"inputs.input_files: no copy of {path} could be made in {self._home}/inputs:"
                f" {error.strerror}.",
                remedy="Check the free space and the permissions of both.",
            ) from error
        finally:
            os.close(source)
        return SealedInput(path=path, sha256=digest, copy=str(copy))

    def _read_once(self, source: int, target: int) -> str:
        """Copy and digest. A file that grows while it is read is refused at the limit of IV-05."""
        hasher = hashlib.sha256()
        held_bytes = self._held_bytes
        while chunk := os.read(source, _CHUNK):
            held_bytes += len(chunk)
            if held_bytes > INPUT_FILES_BYTES:
                raise _too_large()
            hasher.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(target, rest) :]
        self._held_bytes = held_bytes
        return hasher.hexdigest()


def _owner(folder: str) -> tuple[int, int]:
    return own(os.stat(folder, follow_symlinks=False))


def _opened(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file that the policy has judged. A tool that runs meanwhile may have put a
    link, a pipe or a device in its place, so the kind is checked before the open."""
    try:
        handle = kernel.open_exact(path, os.O_PATH)
    except OSError as error:
        raise _input_changed(path) from error
    try:
        look = os.fstat(handle)
        if not stat.S_ISREG(look.st_mode):
            raise _input_changed(path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), look
    except OSError as error:
        raise _input_changed(path) from error
    finally:
        os.close(handle)


def _input_changed(path: str) -> Refused:
    return Refused(
        "PATH_CHANGED",
        f"inputs.input_files: {path} is no longer the file that was checked.",
        remedy="Run again once nothing moves the input files.",
    )


def _too_large() -> Refused:
    message = (
        f"inputs.input_files: the files grew over {INPUT_FILES_BYTES} bytes together while they"
        " were copied: rejected."
    )
    value = f"more than {INPUT_FILES_BYTES} bytes"
    violation = Violation(code="IV-05", field="inputs.input_files", value=value, message=message)
    return Refused(violation.code.replace("-", "_"), message, violations=(violation,))


def recover(home: Path) -> None:
    """Remove the copies of processes that are gone."""
    inputs = home / "inputs"
    if not inputs.is_dir():
        return
    for folder in inputs.iterdir():
        if removal.is_removable(folder) and not is_claimed(folder):
            with contextlib.suppress(removal.RemovalRefused, OSError):
                removal.remove(folder)
