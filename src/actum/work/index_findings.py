"""Compares the index of the project's files with the files.

A scan trusts a digest of the index where the kernel's timestamps match those in the index, so a
writer of the index can hide a change of the project. This check reads all files and compares them
with the state that a scan would take from the index. The index holds nothing else, and may be
missing.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from actum.evidence.verify.findings import DATA_ERRORS, Finding, judged, said
from actum.workspace.index import Index, difference
from actum.workspace.space import Space
from actum.workspace.tree import Delta, shown

#: A project that is being edited may differ between two scans: they are repeated.
_LOOKS = 3
_SHOWN_PATHS = 5


def index_findings(home: Path) -> Iterator[Finding]:
    space = Space(home, home.parent, looks=True)
    path = space.folder / "index.db"
    if not path.exists():
        return
    subject = f"file {path.relative_to(home)}"
    if path.is_symlink():
        detail = "a symbolic link is in its place"
        yield Finding(subject, "content", False, detail)
        return
    try:
        same, wrong = _compared(space)
    except (sqlite3.Error, struct.error, *DATA_ERRORS) as error:
        yield Finding(subject, "content", False, f"it cannot be compared: {said(error)}")
        return
    paths = ", ".join(shown(change.path) or "." for change in wrong[:_SHOWN_PATHS])
    detail = f"{len(wrong)} paths differ from it: {paths}; remove it, the next scan rebuilds it"
    yield judged(subject, "content", same, detail)


def _compared(space: Space) -> tuple[bool, Delta]:
    """Whether a scan that trusts the index finds the actual state, and which paths differ."""
    wrong: Delta = ()
    for _ in range(_LOOKS):
        with closing(Index(Path(":memory:"))) as empty:
            state, there = empty.look(space.base, space.skip)
        with space.index() as index:
            believed, indexed = index.look(space.base, space.skip)
        wrong = difference(there.items(), indexed)
        if state == believed and not wrong:
            return True, ()
    return False, wrong
