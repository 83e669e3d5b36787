"""Named parts of the protection that a control takes out, in the work item's own process."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from strike_imports import wrap


def _plain_removal() -> None:
    """A room is removed with all that is mounted in it."""

    def around(_: Callable) -> Callable:
        return lambda _space, room: shutil.rmtree(room, ignore_errors=True)

    wrap("actum.workspace.space", "Space.drop", around)


BREAKS = {"plain-removal": _plain_removal}


def apply_break(name: str) -> None:
    BREAKS[name]()
