"""IV-03 for one path: resolve it as the kernel would, then judge what it resolves to.

Judging is by whole components of the resolved absolute path, never by how it is written: a folder
of the project that is called `etc` is fine, a link to `/etc` is not.
"""

from __future__ import annotations

import ntpath
import os
import re
from collections.abc import Iterable

from actum.contract.levels import is_within
from actum.registry.looks import Looks
from actum.value import value

SYSTEM_PREFIXES = ("/etc", "/var")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEPARATORS = re.compile(r"[\\/]+")
_DEVICE_PREFIX = re.compile(r"^[\\/]{2}[?.][\\/]")
_WINDOWS = re.compile(r"^[a-z]:\\?windows(\\|$)")


class PathRefused(Exception):
    """Why a path is not permitted; the caller knows which field it came from."""


@value
class Reach:
    """What a path is judged against."""

    inside: tuple[str, ...]  #: absolute, resolved
    deny: tuple[str, ...]
    system_approved: bool  #: an approved Elevated policy: listed system paths are permitted


def is_text(value: str) -> bool:
    """Whether `value` can be handed to the kernel; JSON can smuggle in lone surrogates."""
    return value.isascii() or _SURROGATE.search(value) is None


def has_parent_step(value: str) -> bool:
    return ".." in value.split("/")


def resolve(value: str, base: str, looks: Looks) -> str:
    """The absolute path that `value` means when the working directory is `base`; need not exist."""
    if "\0" in value or not is_text(value):
        raise PathRefused("it contains a NUL byte or a lone surrogate, which no file name can")
    if "\\" in value and ".." in _SEPARATORS.split(value):
        raise PathRefused(
            "it climbs with a backslash ('..\\'); write forward slashes, without '..'"
        )
    if "windows" in value.casefold() and _WINDOWS.match(
        ntpath.normpath(_DEVICE_PREFIX.sub("", value)).casefold()
    ):
        raise PathRefused("it lies below C:\\Windows\\")
    return looks.real(os.path.join(base, value))


def look_at(path: str, looks: Looks) -> os.stat_result:
    """What is at `path`. Only after `judge`: a refusal says nothing about what is out of reach."""
    try:
        return looks.status(path)
    except FileNotFoundError as error:
        raise PathRefused("it does not exist") from error
    except OSError as error:
        raise PathRefused(f"it cannot be opened: {error.strerror}") from error


def judge(path: str, reach: Reach) -> None:
    """Refuse a resolved `path` that lies outside what is permitted. Deny is asked first."""
    if is_covered(path, reach.deny):
        raise PathRefused("it lies in a denied path")
    for prefix in SYSTEM_PREFIXES:
        if is_within(path, prefix) and not (
            reach.system_approved
            and any(is_within(path, root) and is_within(root, prefix) for root in reach.inside)
        ):
            raise PathRefused(
                f"it resolves below {prefix}/, which needs level elevated, a listed path and an "
                "approval"
            )
    if not is_covered(path, reach.inside):
        permitted = ", ".join(reach.inside) or "nothing"
        raise PathRefused(f"it resolves outside the permitted paths ({permitted})")


def is_covered(path: str, roots: Iterable[str]) -> bool:
    return any(is_within(path, root) for root in roots)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without those that another one covers already."""
    distinct = sorted(set(paths))
    return tuple(
        path
        for path in distinct
        if not any(other != path and is_within(path, other) for other in distinct)
    )


def common(some: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The paths that both sides mean: of each overlapping pair, the inner one."""
    left, right = tuple(some), tuple(others)
    return outermost(
        (
            *(path for path in left if is_covered(path, right)),
            *(path for path in right if is_covered(path, left)),
        )
    )
