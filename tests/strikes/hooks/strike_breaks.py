"""The rules that keep a project from being lost, each of which a control can take out.

They act in the work item's own process only. `fail` makes the run fail at the worst moment: the
engine is set up, and nothing has run yet.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strike_imports import wrap


def _writable_lower() -> None:
    """The project is mounted as the lower layer without the read-only attribute."""

    def around(_: Callable) -> Callable:
        def attach(source: str, target: str, *, view: int = -1) -> None:
            from actum import kernel

            folder = os.open(source, os.O_PATH | os.O_DIRECTORY)
            tree = kernel.clone_tree(folder, recursive=False)
            if view >= 0:
                kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, userns=view, recursive=False)
            kernel.move_mount(tree, target)

        return attach

    wrap("actum.workspace.namespace", "attach_read_only", around)


def _mounts_in_room() -> None:
    """The engine mounts inside the room of the run."""

    def around(_: Callable) -> Any:
        def mounts(space: Any) -> Path:
            (room,) = space.rooms.iterdir()
            return room / "mounts"

        return property(mounts)

    wrap("actum.workspace.space", "Space.mounts", around)


def _plain_removal() -> None:
    """A room is removed with all that is mounted in it."""

    def around(_: Callable) -> Callable:
        return lambda _space, room: shutil.rmtree(room, ignore_errors=True)

    wrap("actum.workspace.space", "Space.drop", around)


def _no_undo() -> None:
    """A run that fails leaves its mounts where they are."""

    def around(_: Callable) -> Callable:
        return lambda _engine: None

    wrap("actum.workspace.overlay", "OverlayEngine.close", around)


def _fail() -> None:
    def around(tell: Callable) -> Callable:
        def failing(run: Any, shop: Any, at: str, **more: str) -> None:
            if at == "frozen":
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            tell(run, shop, at, **more)

        return failing

    wrap("actum.engine.work.attempt", "tell", around)


RULES = {
    "read-only lower layer": _writable_lower,
    "no mount in a room": _mounts_in_room,
    "the one remover": _plain_removal,
    "set-up undoes itself": _no_undo,
}


def apply_breaks(rules: list[str], *, fail: bool) -> None:
    """Take these rules out; `fail`: and let the run fail."""
    for rule in rules:
        RULES[rule]()
    if fail:
        _fail()
