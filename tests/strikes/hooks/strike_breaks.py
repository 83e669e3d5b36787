"""Named changes to a work item's own process: protection taken out, or a moment held open."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable
from typing import Any

from strike_imports import wrap


def _plain_removal() -> None:
    """A room is removed with all that is mounted in it."""

    def around(_: Callable) -> Callable:
        return lambda _space, room: shutil.rmtree(room, ignore_errors=True)

    wrap("actum.workspace.space", "Space.drop", around)


def _late_word() -> None:
    """Set-up is done and the view is there; the process says so when its asker is gone."""

    def around(tell: Callable) -> Callable:
        def called(*arguments: Any) -> Any:
            waiting = select.poll()
            waiting.register(1, 0)  # a pipe without a reader is an error, which is always reported
            waiting.poll(60_000)
            return tell(*arguments)

        return called

    wrap("actum.doors.chamber", "_tell", around)


BREAKS = {"plain-removal": _plain_removal, "late-word": _late_word}


def apply_breaks(names: list[str]) -> None:
    for name in names:
        BREAKS[name]()
