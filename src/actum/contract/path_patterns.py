"""Path patterns: a subset of `.gitignore`. No regular expression: tools choose the paths, and a
path must not make matching slow.

        *       any characters of one name          a/       a folder, with all contents
        ?       one character of a name             /a, a/b  from the project's folder
        **      any number of folders               a        at any depth, with all contents

`!`, `[` and `\\` are not supported.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

PERMITTED = "names and *, ?, ** between slashes, as in `*.log`, `cache/` or `/out/*.tmp`"
_NOT_TAKEN = frozenset("![]\\")
_ANY_FOLDERS = "**"


def problem_with(pattern: str) -> str:
    """What is wrong with a pattern; empty if it is valid."""
    if not pattern.strip("/"):
        return "names nothing"
    if taken := sorted(_NOT_TAKEN.intersection(pattern)):
        return f"holds {' '.join(taken)}"
    parts = pattern.strip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty name, `.` or `..`"
    if any(_ANY_FOLDERS in part and part != _ANY_FOLDERS for part in parts):
        return "has `**` as a part of a name"
    return ""


def match(patterns: Iterable[str], path: str) -> bool:
    """Whether a pattern matches this file path, relative to the project, or a folder of it."""
    names = path.split("/")
    return any(_matches(pattern, names) for pattern in patterns)


def _matches(pattern: str, names: list[str]) -> bool:
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = [_ANY_FOLDERS, *parts]
    # All positions in the pattern that the names so far can have reached.
    positions = _onwards({0}, parts)
    for name in names:
        if len(parts) in positions:
            return True  # a parent folder matches
        positions = _onwards({_after(position, name, parts) for position in positions}, parts)
    return len(parts) in positions and not pattern.endswith("/")


def _after(position: int, name: str, parts: list[str]) -> int:
    if parts[position] == _ANY_FOLDERS:
        return position
    return position + 1 if fnmatchcase(name, parts[position]) else -1


def _onwards(positions: set[int], parts: list[str]) -> set[int]:
    found: set[int] = set()
    for position in positions - {-1}:
        end = position
        while end < len(parts) and parts[end] == _ANY_FOLDERS:
            end += 1
        found.update(range(position, end + 1))
    return found
