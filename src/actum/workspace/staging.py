"""New content of a transaction, moved or copied out of the upper layer before the commit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from actum.sandbox.identity import TOOL_ID
from actum.workspace import files
from actum.workspace.copies import copy_name, own
from actum.workspace.grant_layer import Layer, base_of, opened
from actum.workspace.tree import Delta, Kind, name_of, parent_of

#: Folders of one layer: new content, copies of it for `actum diff`, and replaced content.
STAGED = ("new", "after", "old")
#: An empty file in a transaction's folder: the tool had secrets, so nothing it wrote is copied.
SECRETS = "secrets"
#: New content up to this size is copied for `actum diff`. Larger files are read from the project.
_COPIED_BYTES = 262_144
_OVERLAY_MARKS = ("trusted.overlay.", "user.overlay.")


def stage(delta: Delta, layer: Layer, *, copied: bool) -> None:
    """Move or copy new content out of the upper layer, with its final owner and mode and without
    overlay attributes.

    Hard links among the changed names stay hard links.
    """
    new, after = Path(layer.folder) / "new", Path(layer.folder) / "after"
    copied_bytes = -1 if (new.parent.parent / SECRETS).exists() else _COPIED_BYTES
    new.mkdir(mode=0o700)
    after.mkdir(mode=0o700)
    top = base_of(layer)
    staged: dict[tuple[int, int], bytes] = {}
    with (
        opened(layer.tree) as above,
        opened(str(new)) as target,
        opened(str(after)) as copies,
    ):
        for number, change in enumerate(delta):
            entry = change.after
            if entry is None or entry.kind not in (Kind.FILE, Kind.LINK):
                continue
            name = b"%d" % number
            folder = _open_to_take(parent_of(change.path), above)
            try:
                look = os.stat(name_of(change.path), dir_fd=folder, follow_symlinks=False)
                first = staged.setdefault((look.st_dev, look.st_ino), name)
                if first != name:
                    # Owner, mode and copy were made for the first name.
                    os.link(
                        first, name, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False
                    )
                    continue
                if copied:
                    with files.opened_up(name_of(change.path), folder, look):
                        copy_name(name_of(change.path), look, folder, name, target)
                else:
                    os.rename(name_of(change.path), name, src_dir_fd=folder, dst_dir_fd=target)
            finally:
                os.close(folder)
            if os.geteuid() == 0:
                os.chown(name, *_project_owner(look, top), dir_fd=target, follow_symlinks=False)
            if entry.kind is Kind.FILE:
                os.chmod(name, entry.mode | 0o600, dir_fd=target)
                _strip(name, target)
                if look.st_size <= copied_bytes:
                    copy_name(name, look, target, name, copies, own(look))
                # Last, because this mode may deny the owner the right to read. Never set-user-id
                # or set-group-id: the tool chose the mode, and the owner is another user here.
                os.chmod(name, entry.mode, dir_fd=target)


def _project_owner(look: os.stat_result, top: os.stat_result) -> tuple[int, int]:
    """The owner in the project of a file in a layer. Idempotent: a second name of the same file
    gets the same owner."""
    uid, gid = own(look)
    return top.st_uid if uid == TOOL_ID else uid, top.st_gid if gid == TOOL_ID else gid


def _open_to_take(path: bytes, above: int) -> int:
    """Open a folder of the layer to move names out of it. An ordinary user needs write and search
    permission on it and on every folder above, so both are added. The layer is not used again."""
    if os.geteuid() == 0:
        return files.open_folder(path, above)
    folder = os.open(b".", files.FOLDER_FLAGS, dir_fd=above)
    for part in (b".", *path.split(b"/")) if path else (b".",):
        handle = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        os.close(folder)
        try:
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            if mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{handle}", mode | 0o700)
            folder = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY)
        finally:
            os.close(handle)
    return folder


def _strip(name: bytes, folder: int) -> None:
    """Remove the overlay's own attributes from a file."""
    descriptor = os.open(name, files.FILE_FLAGS, dir_fd=folder)
    try:
        for mark in os.listxattr(descriptor):
            if mark.startswith(_OVERLAY_MARKS):
                os.removexattr(descriptor, mark)
    finally:
        os.close(descriptor)
