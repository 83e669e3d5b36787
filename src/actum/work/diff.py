"""The changes of a run, for people: paths, and a unified diff of text files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from actum.contract.model import Json
from actum.value import value
from actum.workspace.tree import Delta, Entry, Kind, shown

_MOST_BYTES = 262_144
_MOST_LINES = 400


@value
class Shown:
    action: str
    path: str
    diff: str  #: unified; empty for what is not text

    def document(self) -> dict[str, Json]:
        return {"action": self.action, "path": self.path, "diff": self.diff}


def changes(delta: Delta, base: Path, staged: Path) -> Iterator[Shown]:
    """Every changed path; `staged` holds new content under the number of its change."""
    for number, change in enumerate(delta):
        path = shown(change.path) or "."
        old = _lines(change.before, os.fsencode(base) + b"/" + change.path)
        new = _lines(change.after, os.fsencode(staged) + b"/%d" % number)
        text = ""
        if old is not None and new is not None:
            lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=3)
            text = "".join(_bounded(lines))
        yield Shown(action=change.action.value, path=path, diff=text)


def _lines(entry: Entry | None, path: bytes) -> list[str] | None:
    """The lines of a text file; none if there is no entry; ``None`` for what is not text."""
    if entry is None:
        return []
    if entry.kind is not Kind.FILE:
        return None
    with open(path, "rb") as file:  # a private copy, or the workspace itself, held by its lock
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES or b"\0" in content:
        return None
    try:
        lines = content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]


def _bounded(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == _MOST_LINES:
            yield "…\n"
            return
        yield line
