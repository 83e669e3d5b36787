"""IV-03 for one path: resolve it as the kernel would, then check the resolved path.

Checks compare whole components of the resolved absolute path, never its spelling: a folder of the
project that is called `etc` is fine, a link to `/etc` is not.
"""

from __future__ import annotations

import ntpath
import os
import re
from collections.abc import Iterable

from actum.contract.levels import is_within
from actum.contract.model import SCRATCH
from actum.registry.path_snapshot import PathSnapshot
from actum.value import value

SYSTEM_PREFIXES = ("/etc", "/var")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEPARATORS = re.compile(r"[\\/]+")
_DEVICE_PREFIX = re.compile(r"^[\\/]{2}[?.][\\/]")
_WINDOWS = re.compile(r"^[a-z]:\\?windows(\\|$)")


class PathRefused(Exception):
    """Why a path is not permitted; the caller knows its field."""


@value
class Reach:
    """The paths that a path is checked against."""

    inside: tuple[str, ...]  #: absolute, resolved
    deny: tuple[str, ...]
    system_approved: bool  #: an approved Elevated policy: listed system paths are permitted
    writing: bool = False  #: the paths that may be written, not those that may be read


def is_text(value: str) -> bool:
    """Whether the kernel accepts `value`; JSON can contain lone surrogates."""
    return value.isascii() or _SURROGATE.search(value) is None


def has_parent_step(value: str) -> bool:
    return ".." in value.split("/")


def resolve(value: str, base: str, snapshot: PathSnapshot) -> str:
    """The absolute path of `value` relative to `base`; need not exist."""
    if "\0" in value or not is_text(value):
        raise PathRefused("it contains a NUL byte or a lone surrogate, which a file name cannot")
    if "\\" in value and ".." in _SEPARATORS.split(value):
        raise PathRefused(
            "it goes up with a backslash ('..\\'); write forward slashes, without '..'"
        )
    if "windows" in value.casefold() and _WINDOWS.match(
        ntpath.normpath(_DEVICE_PREFIX.sub("", value)).casefold()
    ):
        raise PathRefused("it is below C:\\Windows\\")
    return snapshot.real(os.path.join(base, value))


def status_of(path: str, snapshot: PathSnapshot) -> os.stat_result:
    """The status of `path`. Only after `judge`: a refusal must not reveal other paths."""
    try:
        return snapshot.status(path)
    except FileNotFoundError as error:
        raise PathRefused("it does not exist") from error
    except OSError as error:
        raise PathRefused(f"it cannot be opened: {error.strerror}") from error


def judge(path: str, reach: Reach) -> None:
    """Refuse a resolved `path` outside the permitted ones. Deny wins."""
    if is_covered(path, reach.deny):
        raise PathRefused("it is in a denied path")
    for prefix in SYSTEM_PREFIXES:
        if is_within(path, prefix) and not (
            reach.system_approved
            and any(is_within(path, root) and is_within(root, prefix) for root in reach.inside)
        ):
            raise PathRefused(
                f"it resolves below {prefix}/, which needs level elevated, a listed path and an "
                "approval"
            )
    if not reach.inside:
        raise PathRefused(_no_path(reach))
    if not is_covered(path, reach.inside):
        permitted = ", ".join(reach.inside)
        raise PathRefused(f"it resolves outside the permitted paths ({permitted})")


def _no_path(reach: Reach) -> str:
    """The reason where the tool or the request permits no path at all, with the remedies."""
    if reach.writing:
        return (
            "the effective policy permits writing to no path of the host; promise it as an artifact"
            " instead, or list a path under scope.filesystem of the tool's tool.yaml with"
            " `data_access: write`, and approve the tool again"
        )
    return (
        "the effective policy permits no path of the host; as working directory give"
        f" `{SCRATCH}` (--cwd {SCRATCH}), or list a path under scope.filesystem of the tool's"
        " tool.yaml and approve the tool again"
    )


def is_covered(path: str, roots: Iterable[str]) -> bool:
    for root in roots:  # noqa: SIM110 -- a generator costs several times as much
        if is_within(path, root):
            return True
    return False


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without paths that another one covers."""
    found: list[str] = []
    for path in sorted(set(paths)):  # a folder comes before what is in it
        if not is_covered(path, found):
            found.append(path)
    return tuple(found)


def common(some: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The paths that both sides cover: of each overlapping pair, the inner one."""
    left, right = tuple(some), tuple(others)
    return outermost(
        (
            *(path for path in left if is_covered(path, right)),
            *(path for path in right if is_covered(path, left)),
        )
    )
