"""Of changes that are about to be committed, those that decide what will be executed later.

For the transactions of executions and for work items: both ask here before they commit, and
neither has a list of its own. The host is looked at as it is now, without the changes. So this must
not run where a view with the changes is mounted over the project.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

from actum.contract.governing_names import GOVERNING
from actum.policy.governing import Exists, Touched, held_back
from actum.registry.looks import Looks
from actum.workspace.git_names import NamedByGit
from actum.workspace.tree import Delta, Kind


def governed(
    deltas: Iterable[tuple[str, Delta]], root: str, names: Iterable[str], exists: Exists
) -> list[tuple[str, bytes]]:
    """Each governing path as the folder of its delta and the path within.

    `deltas` are changes with the folder that they belong in, `root` is the project's folder,
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
    named = NamedByGit(touched, os.path.expanduser("~"))
    held = set(held_back(touched, root, names, exists, named))
    led_to = tuple(os.fsencode(path) + b"/" for path in _led_to(root))
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
    """Where a governing name leads that is a link: every link on the way, and the end."""
    for path in (f"{root}/{name}" for name in GOVERNING):
        if os.path.islink(path):
            looks = Looks()
            yield from looks.links_on(path)
            yield looks.real(path)
