"""Granted paths as detached mounts: members no longer see the host's files, so others open them.

The opener is a process beside the spawner, for three reasons: what one request grants is in no
memory that another sandbox is forked from; a file system that hangs keeps nobody from a sandbox who
does not want it; and opening does not wait for members that are being made.

A path is opened once without following any symlink, compared with the file that the policy judged,
and that very object is what becomes a mount. Its owner's files are shown as the tool's where the
two differ, by an idmapped mount.
"""

from __future__ import annotations

import contextlib
import os
import socket

from actum import kernel
from actum.sandbox import wire
from actum.sandbox.talk import pass_packet, receive_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Grant, Trees

_READ_ONLY = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_WRITABLE = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class CannotOpen(Exception):
    """With the reason's code, for the host."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def serve(server: socket.socket, tool: tuple[int, int]) -> NoReturn:
    """Be the opener, until the host hangs up."""
    idmaps: dict[tuple[int, int], int] = {}
    while True:
        received = receive_document(server)
        if received is None:
            os._exit(0)
        order, (descriptor,) = received
        # If the member died this instant, the host learns it from the control socket.
        with (
            contextlib.suppress(BrokenPipeError, ConnectionResetError),
            socket.socket(fileno=descriptor) as member,
        ):
            try:
                trees = _open(order, tool, idmaps)
            except CannotOpen as error:
                member.send(wire.CANNOT + f"{error.reason} {error}".encode())
                continue
            try:
                for first in range(0, len(trees), wire.MAX_PASSED):
                    pass_packet(member, wire.OPENED, trees[first : first + wire.MAX_PASSED])
            finally:
                _close(trees)


def _open(order: Trees, tool: tuple[int, int], idmaps: dict[tuple[int, int], int]) -> list[int]:
    """Detached trees in the order of the grants, or `CannotOpen`."""
    owner = (order["owner_uid"], order["owner_gid"])
    trees: list[int] = []
    try:
        # A user namespace that shows the owner's files as the tool's, unless they are.
        if owner != tool and owner not in idmaps:
            idmaps[owner] = _idmap(owner, tool)
        for grant in order["grants"]:
            trees.append(_tree(grant, idmaps.get(owner, -1)))  # noqa: PERF401 -- to be closed
    except OSError as error:
        _close(trees)
        raise CannotOpen("SANDBOX_UNAVAILABLE", f"{error.strerror or error}") from error
    except CannotOpen:
        _close(trees)
        raise
    return trees


def _close(trees: list[int]) -> None:
    for tree in trees:
        os.close(tree)


def _tree(grant: Grant, idmap: int) -> int:
    path = grant["path"]
    descriptor = kernel.open_exact(path, os.O_PATH)
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (grant["device"], grant["inode"]):
        os.close(descriptor)
        raise CannotOpen("PATH_CHANGED", f"{path} is no longer the file that was checked")
    try:
        tree = kernel.clone_tree(descriptor)
    finally:
        os.close(descriptor)
    kernel.mount_setattr(tree, _WRITABLE if grant["write"] else _READ_ONLY)
    if idmap >= 0:
        try:
            kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, userns=idmap)
        except OSError as error:
            # Read-only, the mapping is a convenience (the caller's 0600 files become readable);
            # for writing, files would come out owned by a stranger.
            if grant["write"]:
                os.close(tree)
                raise CannotOpen("IDMAP_UNSUPPORTED", f"{path}: {error.strerror}") from error
    return tree


def _idmap(owner: tuple[int, int], tool: tuple[int, int]) -> int:
    """A user namespace in which the owner's files are the tool's."""
    uids, gids = (f"{theirs} {ours} 1" for theirs, ours in zip(owner, tool, strict=True))
    return kernel.mapping_namespace(uids, gids)
