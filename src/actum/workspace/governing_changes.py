"""The changes of a commit that decide what is executed later.

Transactions of executions and work items both call this before they commit, and neither has a list
of its own. It reads the host's current state, without the changes. So it must not run where a view
with the changes is mounted over the project.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from functools import cache

from actum.contract.governing_names import GOVERNING
from actum.own_code import own_code
from actum.policy.governing import Exists, Touched, held_back
from actum.registry.path_snapshot import PathSnapshot
from actum.workspace.tree import Delta, Kind


def governed(
    deltas: Iterable[tuple[str, Delta]], root: str, names: Iterable[str], exists: Exists
) -> list[tuple[str, bytes]]:
    """Each governing path as the folder of its delta and the path within.

    `deltas` are changes with their folder, `root` is the project's folder,
    `names` are protected (`[protect] names`).
    """
    touched: dict[Touched, tuple[str, bytes]] = {}
    for folder, delta in deltas:
        top = os.fsencode(folder).rstrip(b"/")
        for change in delta:
            after = change.after
            path = Touched(
                top + b"/" + change.path if change.path else top,
                removed=after is None,
                link=after is not None and after.kind is Kind.LINK,
            )
            touched[path] = (folder, change.path)
    from actum.workspace.git_names import NamedByGit  # most executions change nothing

    named = NamedByGit(touched, os.path.expanduser("~"))
    held = set(held_back(touched, root, names, exists, named))
    led_to = tuple(os.fsencode(path) + b"/" for path in (*_led_to(root), *_own_code()))
    return [
        where
        for each, where in touched.items()
        if each.path in held or (each.path + b"/").startswith(led_to)
    ]


def exists_on_host(path: bytes) -> bool | None:
    try:
        os.lstat(path)
    except OSError as error:
        return None if error.errno == errno.ENAMETOOLONG else False
    return True


def _led_to(root: str) -> Iterator[str]:
    """Every link on the way, and the target: of governing names that are links, and of the links in
    governing folders. Actum reads `agents/NAME.yaml` through a link."""
    for path in (f"{root}/{name}" for name in GOVERNING):
        if os.path.islink(path):
            yield from _way(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as names:
            for entry in names:
                if entry.is_symlink():
                    yield from _way(entry.path)


@cache
def _own_code() -> tuple[str, ...]:
    return tuple(sorted({*own_code(), *(way for path in own_code() for way in _way(path))}))


def _way(path: str) -> Iterator[str]:
    """Every link on the way, and the target."""
    snapshot = PathSnapshot()
    yield from snapshot.links_on(path)
    yield snapshot.real(path)
