"""Caps on the changes of one step of a run, checked before the commit.

They come from the run's contract and are stricter than an item's own constraints: they count bytes.
The diff of a text file is what is left of both versions without their common first and last lines;
that is linear in the size of the file, and never less than the lines that a unified diff shows.
Anything that is not text counts with its new size.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from actum.contract.model import Json
from actum.value import as_dict, value
from actum.workspace.tree import Change, Delta, Kind, shown

MAX_FILES = "max_files_per_step"
MAX_DIFF = "max_total_diff_bytes"
MAX_FILE = "max_file_bytes"
ENV_FILE = "restricted_env_file"
NO_CHANGE = "correction_commit_required"
OUTSIDE = "correction_path_outside"


@value
class StepCaps:
    max_files: int
    max_total_diff_bytes: int
    max_file_bytes: int
    allow_env_mutation: bool
    must_change: bool = False  #: a correction that changes nothing corrects nothing
    paths: tuple[str, ...] | None = None  #: a correction stays within these files and folders

    def document(self) -> dict[str, Json]:
        written = as_dict(self)
        return {**written, "paths": None if self.paths is None else list(self.paths)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> StepCaps:
        paths = document["paths"]
        return cls(**{**document, "paths": None if paths is None else tuple(paths)})


def broken_cap(
    caps: StepCaps, delta: Delta, base: Path, staged: Path, env_targets: Container[str] = ()
) -> str | None:
    """The first cap that staged changes break, as ``code: what was found``. `env_targets` are the
    files that links named `.env` lead to."""
    changed = [
        (number, change)
        for number, change in enumerate(delta)
        if not all(
            each is None or each.kind is Kind.FOLDER for each in (change.before, change.after)
        )
    ]
    names = [shown(change.path) for _number, change in changed]
    if caps.must_change and not delta:
        return f"{NO_CHANGE}: the correction changed nothing"
    if len(changed) > caps.max_files:
        return f"{MAX_FILES}: {len(changed)} > {caps.max_files}"
    env = [name for name in names if is_env_file(name) or name in env_targets]
    if env and not caps.allow_env_mutation:
        return f"{ENV_FILE}: {env[0]}"
    outside = [name for name in names if not _is_within(name, caps.paths)]
    if outside:
        return f"{OUTSIDE}: {outside[0]}"
    total = 0
    for number, change in changed:
        new = _content(change.after, os.fsencode(staged) + b"/%d" % number, caps.max_file_bytes)
        if new is not None and len(new) > caps.max_file_bytes:
            return f"{MAX_FILE}: {shown(change.path)} has more than {caps.max_file_bytes} bytes"
        # An old version that is longer than this has lost more bytes than the cap allows.
        most = caps.max_file_bytes + caps.max_total_diff_bytes
        total += _diff_bytes(change, base, new, most)
        if total > caps.max_total_diff_bytes:
            return f"{MAX_DIFF}: more than {caps.max_total_diff_bytes}"
    return None


def is_env_file(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == ".env" or last.startswith(".env.")


def _is_within(name: str, paths: Sequence[str] | None) -> bool:
    if paths is None:
        return True
    return any(name == path or name.startswith(f"{path.rstrip('/')}/") for path in paths)


def _content(entry: Any, path: bytes, most: int) -> bytes | None:
    """A regular file's content, at most one byte more than `most`."""
    if entry is None or entry.kind is not Kind.FILE:
        return None
    with open(path, "rb") as file:  # a private copy, or the workspace itself, held by its lock
        return file.read(most + 1)


def _diff_bytes(change: Change, base: Path, new: bytes | None, most: int) -> int:
    old = _content(change.before, os.fsencode(base) + b"/" + change.path, most)
    if new is not None and b"\0" in new:
        return len(new)
    before, after = (old or b"").splitlines(True), (new or b"").splitlines(True)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    rest = (*before[start : len(before) - end], *after[start : len(after) - end])
    return sum(map(len, rest))
