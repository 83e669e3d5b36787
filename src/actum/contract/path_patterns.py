"""Patterns of paths, as a part of what `.gitignore` takes. No expression of a library: a path is
the work of a tool, and must not make a comparison slow.

    *       any characters of one name          a/       a folder, with everything below it
    ?       one character of a name             /a, a/b  from the project's folder
    **      any number of folders               a        at any depth, with everything below it

`!`, `[` and `\\` are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

PERMITTED = "names and *, ?, ** between slashes, as in `*.log`, `cache/` or `/out/*.tmp`"
_NOT_TAKEN = frozenset("![]\\")
_ANY_FOLDERS = "**"


def problem_with(pattern: str) -> str:
    """What is wrong with a pattern; empty if nothing is."""
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
    """Whether a pattern matches this path of a file, relative to the project, or a folder of it."""
    names = path.split("/")
    return any(_matches(pattern, names) for pattern in patterns)


def _matches(pattern: str, names: list[str]) -> bool:
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = [_ANY_FOLDERS, *parts]
    # Every place in the pattern that the names so far can have led to.
    places = _onwards({0}, parts)
    for name in names:
        if len(parts) in places:
            return True  # a folder around it matches
        places = _onwards({_after(place, name, parts) for place in places}, parts)
    return len(parts) in places and not pattern.endswith("/")


def _after(place: int, name: str, parts: list[str]) -> int:
    if parts[place] == _ANY_FOLDERS:
        return place
    return place + 1 if fnmatchcase(name, parts[place]) else -1


def _onwards(places: set[int], parts: list[str]) -> set[int]:
    found: set[int] = set()
    for place in places - {-1}:
        end = place
        while end < len(parts) and parts[end] == _ANY_FOLDERS:
            end += 1
        found.update(range(place, end + 1))
    return found
