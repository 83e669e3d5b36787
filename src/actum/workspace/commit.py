"""Commit a delta to the workspace, so that a crash leaves all of it or none of it.

    stage:   copy new content beside the workspace, hard-link the content that will be replaced
    intent:  one file with every step left to do; one sync for all of it, and then the file gets
             its name: the commit point
    apply:   do the steps, in an order in which each one can be repeated
    finish:  write the records; then remove the intent

Without an intent nothing was changed. With one, the next process to hold the lock finishes it:
forward, never back, and it overwrites no edit made since without storing the edit first. A reader
of the workspace may see some files new and some old meanwhile.
Proved by tests/crash/test_work_moments.py.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from actum import kernel, removal
from actum.contract.canonical import sha256_bytes
from actum.errors import Fault, Refused
from actum.evidence.records.work_names import BACKWARD, MET
from actum.store import plain_files
from actum.value import replace, value
from actum.workspace import files
from actum.workspace.copies import copy_name, own
from actum.workspace.tree import Change, Delta, Entry, Kind, name_of, parent_of, shown

if TYPE_CHECKING:
    from actum.workspace.engine import Engine

_INTENT = "intent.json"
_Same = tuple[int, int, Entry]  #: device, inode and entry


class WorkspaceDamaged(Fault):
    """A decided change cannot be finished: another program changed the workspace meanwhile."""

    code = "WORKSPACE_DAMAGED"


class KeptChanged(Refused):
    """The stored content of a run was changed and cannot be restored."""


@value
class Step:
    """One path and its wanted state."""

    path: bytes
    kind: Kind | None  #: ``None``: the path is removed
    mode: int = 0
    digest: str = ""
    staged: str = ""  #: the name of its content among the staged files
    owner: tuple[int, int] | None = None  #: of a folder; ``None``: as of the parent folder

    def document(self) -> dict[str, Any]:
        return {
            "path": quote_from_bytes(self.path),
            "kind": self.kind.value if self.kind else None,
            "mode": self.mode,
            "digest": self.digest,
            "staged": self.staged,
            **({"owner": list(self.owner)} if self.owner else {}),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Step:
        kind = document["kind"]
        return cls(
            path=unquote_to_bytes(document["path"]),
            kind=Kind(kind) if kind else None,
            mode=document["mode"],
            digest=document["digest"],
            staged=document["staged"],
            owner=(owner[0], owner[1]) if (owner := document.get("owner")) else None,
        )


@value
class Staged:
    """The steps of a change, and the steps that undo it."""

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]


def stage(delta: Delta, engine: Engine, staging: Path) -> None:
    """Copy all new content into `staging`. Only inside of the engine's `show`.

    Hard links among the changed names stay hard links.
    """
    new = staging / "new"
    new.mkdir(mode=0o700)
    folder = os.open(new, files.FOLDER_FLAGS)
    staged: dict[_Same, bytes] = {}
    try:
        for number, change in enumerate(delta):
            if change.after is not None and change.after.kind in (Kind.FILE, Kind.LINK):
                _stage(change.path, change.after, engine, b"%d" % number, folder, staged)
    finally:
        os.close(folder)


def _stage(
    path: bytes, after: Entry, engine: Engine, name: bytes, target: int, staged: dict[_Same, bytes]
) -> None:
    folder = files.open_folder(parent_of(path), engine.shown)
    try:
        look = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
        # With the entry: an overlay may show the same inode number for files that were one before.
        same = (look.st_dev, look.st_ino, after)
        if look.st_nlink > 1 and same in staged:
            os.link(staged[same], name, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False)
            return
        copy_name(name_of(path), look, folder, name, target, engine.owner(look))
        staged[same] = name
    finally:
        os.close(folder)


def show_staged(delta: Delta, engine: Engine, staging: Path) -> None:
    """Apply the staged content to the view of an engine. The staged files stay. Only inside of
    its `show`."""
    copies = staging / "shown"
    copies.mkdir(mode=0o700)
    there, here = os.open(copies, files.FOLDER_FLAGS), os.open(staging / "new", files.FOLDER_FLAGS)
    try:
        for name in map(os.fsencode, os.listdir(here)):
            look = os.stat(name, dir_fd=here, follow_symlinks=False)
            copy_name(name, look, here, name, there, engine.owner(look))
        steps = [
            step_to(change, change.after, b"%d" % number) for number, change in enumerate(delta)
        ]
        apply(steps, engine.shown, copies)
    finally:
        os.close(there)
        os.close(here)
    removal.remove_part(staging, copies.name)


def keep(delta: Delta, base: Path, staging: Path) -> Staged:
    """Store the content that will be replaced. Outside of `show`: a hard link cannot cross mounts,
    and costs no copy."""
    old = staging / "old"
    old.mkdir(mode=0o700)
    folder, top = os.open(old, files.FOLDER_FLAGS), os.open(base, files.FOLDER_FLAGS)
    try:
        forward, backward = [], []
        for number, change in enumerate(delta):
            name = b"%d" % number
            forward.append(step_to(change, change.after, name))
            back = step_to(change, change.before, name)
            if change.before is not None and change.before.kind in (Kind.FILE, Kind.LINK):
                _keep(change.path, top, name, folder)
            elif back.kind is Kind.FOLDER and change.path:
                back = replace(back, owner=_owner_at(change.path, top))
            backward.append(back)
    finally:
        os.close(folder)
        os.close(top)
    return Staged(forward=tuple(forward), backward=tuple(backward))


def step_to(change: Change, wanted: Entry | None, name: bytes) -> Step:
    if wanted is None:
        return Step(path=change.path, kind=None)
    held = wanted.kind in (Kind.FILE, Kind.LINK)
    return Step(
        path=change.path,
        kind=wanted.kind,
        mode=wanted.mode,
        digest=wanted.digest.hex() if held else "",
        staged=name.decode() if held else "",
    )


def _keep(path: bytes, source: int, name: bytes, target: int) -> None:
    """Hard-link a file's current content, or copy it where a link would not be safe.

    A file with several names is copied: after the commit it can still be written through one of
    the others. A write through a descriptor that is still open shows in the digest, which an undo
    checks.
    """
    folder = files.open_folder(parent_of(path), source)
    try:
        look = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
        if look.st_nlink > 1 or not _linked(name_of(path), folder, name, target):
            copy_name(name_of(path), look, folder, name, target)
    finally:
        os.close(folder)


def _linked(name: bytes, folder: int, new_name: bytes, target: int) -> bool:
    try:
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False  # another file system, or a file of another user
    return True


def _owner_at(path: bytes, base: int) -> tuple[int, int]:
    folder = files.open_folder(path, base)
    try:
        return own(os.fstat(folder))
    finally:
        os.close(folder)


def stage_backward(steps: Iterable[Step], old: Path, new: Path) -> None:
    """Copy stored content into `new`, so that an undo can restore it and the original stays.

    Raises `KeptChanged` if a digest differs: a program that had a file open when it was replaced
    may have written to it later.
    """
    new.mkdir(mode=0o700)
    here, there = os.open(old, files.FOLDER_FLAGS), os.open(new, files.FOLDER_FLAGS)
    try:
        for step in steps:
            if not step.staged:
                continue
            name = step.staged.encode()
            look = files.look(name, here)
            if look is not None:
                copy_name(name, look, here, name, there)
                look = files.look(name, there)
            if look is None or files.read_digest(name, there, look).hex() != step.digest:
                raise KeptChanged(
                    "UNDO_KEPT_CHANGED",
                    f"{shown(step.path)}: its stored content was changed after the commit.",
                    remedy="A program had the file open and wrote to it after it was replaced."
                    f" Nothing was changed; restore the rest by hand, from {old}.",
                )
    finally:
        os.close(here)
        os.close(there)


def write_intent(space: Path, staging: Path, staged: Staged, record: Mapping[str, Any]) -> None:
    """The commit point. `record` is the argument of `finish`, in this process or a later one."""
    (staging / BACKWARD).write_bytes(_backward_text(staged))
    body = {
        "v": 1,
        "room": staging.name,
        "steps": [step.document() for step in staged.forward],
        "record": dict(record),
    }
    text = json.dumps(body, sort_keys=True)
    document = {"body": text, "sha256": sha256_bytes(text.encode())}
    unnamed = space / f"{_INTENT}.new"  # left by a crash, it has no meaning and is overwritten
    with open(unnamed, "wb", opener=_private) as file:
        file.write(json.dumps(document).encode())
    folder = os.open(space, files.FOLDER_FLAGS)
    try:
        # The staged files, the files for an undo and the intent are on this file system. All of
        # them must be on the disk before the name is.
        kernel.syncfs(folder)
    finally:
        os.close(folder)
    os.replace(unnamed, space / _INTENT)
    sync_folder(space)


def _backward_text(staged: Staged) -> bytes:
    return json.dumps([step.document() for step in staged.backward]).encode()


def backward_sha256(staged: Staged) -> str:
    """The digest of the file with the steps that undo a change."""
    return sha256_bytes(_backward_text(staged))


def met_digests(staging: Path) -> dict[str, str]:
    """The edits that were stored while a commit was finished: name to digest."""
    with plain_files.opened(staging) as root:
        if not plain_files.is_folder(root, MET):
            return {}
        return {
            name: plain_files.held(root, f"{MET}/{name}").sha256
            for name in plain_files.names(root, MET)
        }


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def backward_steps(kept: Path) -> tuple[Step, ...]:
    """The steps that undo a stored change."""
    steps = json.loads((kept / BACKWARD).read_text())
    return tuple(Step.read(step) for step in steps)


def pending_intent(space: Path) -> dict[str, Any] | None:
    """The intent of a change that was decided and perhaps not finished."""
    try:
        document = json.loads((space / _INTENT).read_bytes())
    except FileNotFoundError:
        return None
    if sha256_bytes(document["body"].encode()) != document["sha256"]:
        raise WorkspaceDamaged(
            f"{space / _INTENT} does not match its own digest.",
            remedy="Restore the home from a backup; the workspace was not touched.",
        )
    body: dict[str, Any] = json.loads(document["body"])
    return body


def drop_intent(space: Path) -> None:
    (space / _INTENT).unlink(missing_ok=True)
    sync_folder(space)


def apply(steps: Iterable[Step], base: int, staged: Path, *, synced: bool = True) -> None:
    """Do or repeat every step: first the removals, deepest first; then the new content."""
    ordered = sorted(steps, key=lambda step: step.path)
    stage_folder = os.open(staged, files.FOLDER_FLAGS)
    # From the folder's name, which no agent knows: no file of the project has such a name. The name
    # is the same when the step is repeated, so that a copy cut short by a crash is found.
    beside = f".actum-new-{staged.parent.name}-".encode()
    try:
        for step in reversed(ordered):
            _clear(step, base)
        for step in ordered:
            if step.kind is Kind.FOLDER:
                _make_folder(step, base)
            elif step.kind is not None:
                _put(step, base, stage_folder, beside)
        for step in reversed(ordered):
            if step.kind is Kind.FOLDER:
                _set_mode(step, base)
        if synced:
            kernel.syncfs(base)
    finally:
        os.close(stage_folder)


def left_to_do(
    steps: Iterable[Step], before: Iterable[Step], base: int, staging: Path
) -> tuple[Step, ...]:
    """After a crash, perhaps much later: the steps without those that would undo later edits. An
    edit that a step must replace is stored as `met` in `staging`."""
    was = {step.path: step.digest for step in before}
    return tuple(
        step for step in steps if not _overtaken(step, was.get(step.path, ""), base, staging)
    )


def _overtaken(step: Step, was: str, base: int, staging: Path) -> bool:
    if step.staged and not os.path.lexists(staging / "new" / step.staged):
        return True  # already applied; the current content came later
    with _parent(step.path, base) as folder:
        name = name_of(step.path)
        look = None if folder is None else files.look(name, folder)
        if folder is None or look is None or files.kind_of(look.st_mode) is Kind.FOLDER:
            return False
        if files.read_digest(name, folder, look).hex() in (was, step.digest):
            return False
        if step.kind is None:
            return True
        met = staging / MET
        met.mkdir(mode=0o700, exist_ok=True)
        target = os.open(met, files.FOLDER_FLAGS)
        try:
            with contextlib.suppress(FileExistsError):  # stored by a process before this one
                _keep(step.path, base, (step.staged or _name_for(step.path)).encode(), target)
        finally:
            os.close(target)
        return False


def _name_for(path: bytes) -> str:
    """A name for a file in the place of a folder, which has no staged name."""
    return sha256_bytes(path)


def _clear(step: Step, base: int) -> None:
    """Remove a name whose kind differs from the wanted one."""
    if not step.path:
        return
    with _parent(step.path, base) as folder:
        if folder is None:
            return
        name = name_of(step.path)
        look = files.look(name, folder)
        if look is None:
            return
        found = files.kind_of(look.st_mode)
        if step.kind is None or (found is Kind.FOLDER) != (step.kind is Kind.FOLDER):
            _take(name, folder, found)


def _take(name: bytes, folder: int, found: Kind) -> None:
    if found is not Kind.FOLDER:
        os.unlink(name, dir_fd=folder)
        return
    _open_up(name, folder)
    # Not empty: another program put a file there after the last check. That file stays.
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=folder)


def _open_up(name: bytes, folder: int) -> None:
    """Add permissions: a folder without any can be neither listed nor filled by its owner."""
    # By descriptor: a link that a program puts in its place meanwhile is not followed.
    below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(below).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{below}", stat.S_IMODE(mode) | 0o700)
    finally:
        os.close(below)


def _make_folder(step: Step, base: int) -> None:
    if not step.path:
        return
    with _parent(step.path, base) as folder:
        if folder is None:
            raise _cannot(step)
        name = name_of(step.path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
            if os.geteuid() == 0:
                owner = step.owner or own(os.fstat(folder))
                os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
        _open_up(name, folder)


def _put(step: Step, base: int, staged: int, beside: bytes) -> None:
    with _parent(step.path, base) as folder:
        if folder is None:
            raise _cannot(step)
        name, source = name_of(step.path), step.staged.encode()
        look = files.look(source, staged)
        if look is None:
            return  # a process before this one has moved it into place
        try:
            os.rename(source, name, src_dir_fd=staged, dst_dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise _cannot(step) from error
            if error.errno != errno.EXDEV:
                raise
            _copy_over(source, look, staged, name, folder, beside + source)


def _copy_over(
    source: bytes, look: os.stat_result, staged: int, name: bytes, folder: int, beside: bytes
) -> None:
    """The staged file is on another file system: copy beside the target, then rename once."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    copy_name(source, look, staged, beside, folder)
    os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(source, dir_fd=staged)


def _set_mode(step: Step, base: int) -> None:
    if not step.path:
        os.chmod(base, step.mode)
        return
    with _parent(step.path, base) as folder:
        if folder is None:
            return
        below = os.open(name_of(step.path), files.FOLDER_FLAGS, dir_fd=folder)
        try:
            os.fchmod(below, step.mode)
        finally:
            os.close(below)


@contextlib.contextmanager
def _parent(path: bytes, base: int) -> Iterator[int | None]:
    """The open parent folder of `path`; ``None`` if it does not exist (any more)."""
    try:
        folder = files.open_folder(parent_of(path), base)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    # The owner may have removed their own permissions, and the run may still have changed it.
    closed = os.geteuid() != 0 and mode & 0o300 != 0o300
    try:
        if closed:
            os.fchmod(folder, mode | 0o300)
        yield folder
        if closed:
            os.fchmod(folder, mode)
    finally:
        os.close(folder)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, files.FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(step: Step) -> WorkspaceDamaged:
    return WorkspaceDamaged(
        f"{quote_from_bytes(step.path)} could not be changed as decided.",
        remedy="Another program wrote there. Move its file away and run any work item again.",
    )
