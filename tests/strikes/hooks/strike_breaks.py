"""Named changes to a work item's own process: a rule taken out, or a moment made worse.

The rules are those that keep a project from being lost; a control takes them out. The worst moment
is when the engine is set up and nothing has run yet.
"""

from __future__ import annotations

import errno
import os
import select
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
            (room,) = space.run_folders.iterdir()
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


def _fails_when_frozen() -> None:
    """The run fails when its engine is set up."""

    def around(tell: Callable) -> Callable:
        def failing(run: Any, shop: Any, at: str, **more: str) -> None:
            if at == "frozen":
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            tell(run, shop, at, **more)

        return failing

    wrap("actum.work.execute_item", "tell", around)


def _late_word() -> None:
    """Set-up is done and the view is there; the process says so when its asker is gone."""

    def around(tell: Callable) -> Callable:
        def called(*arguments: Any) -> Any:
            waiting = select.poll()
            waiting.register(1, 0)  # a pipe without a reader is an error, which is always reported
            waiting.poll(60_000)
            return tell(*arguments)

        return called

    wrap("actum.doors.work_item_process", "_tell", around)


BREAKS = {
    "read-only lower layer": _writable_lower,
    "no mount in a room": _mounts_in_room,
    "the one remover": _plain_removal,
    "set-up undoes itself": _no_undo,
    "fails when frozen": _fails_when_frozen,
    "late-word": _late_word,
}


def apply_breaks(names: list[str]) -> None:
    for name in names:
        BREAKS[name]()
