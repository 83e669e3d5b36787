"""The port behind which a work item's changes are kept apart from the workspace.

An engine shows the workspace at its own path to one process and its children, takes every change
to itself, and can say afterwards what changed. Dropping it leaves the workspace as it was. Two
engines exist: `overlay`, which costs what changes, and `copy`, which costs what is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from actum import kernel
from actum.errors import Refused
from actum.value import value
from actum.workspace import namespace
from actum.workspace.index import Index
from actum.workspace.tree import Delta, shown

MIB = 1 << 20


@value
class Ground:
    """What an engine works on."""

    base: Path  #: the folder that holds the state
    place: Path  #: where it is shown; the same folder, unless something is tried out again
    mounts: Path  #: an empty folder that nothing removes; the engine mounts its own tmpfs over it
    home: Path  #: shown at its own path as it is, should it lie in `place`
    skip: frozenset[bytes]  #: names right below the top that are no part of the state
    cap_bytes: int = 256 * MIB  #: more than this cannot be written: the kernel says "disk full"
    cap_names: int = 65_536

    @property
    def inner_home(self) -> str | None:
        """Where the home lies in what is shown; there must be something to mount it on."""
        if not self.home.is_relative_to(self.place):
            return None
        return str(self.home.relative_to(self.place))

    @property
    def left_out(self) -> frozenset[bytes]:
        """`skip`, and the home, should it lie right below the top of what is shown."""
        inner = self.inner_home
        return self.skip if inner is None else self.skip | {os.fsencode(inner)}


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def shown(self) -> int:
        """The workspace with all changes, as an open folder; only inside of `show`."""
        ...

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        """Whose a name of `shown` will be in the workspace."""
        ...

    def show(self) -> contextlib.AbstractContextManager[None]:
        """The workspace with all changes so far, writable, at its place."""
        ...

    def show_for_trial(self) -> contextlib.AbstractContextManager[None]:
        """As `show`, and whatever is changed meanwhile is dropped at the end."""
        ...

    def delta(self, index: Index) -> Delta:
        """What differs from `index`. Only inside of `show`, when nothing writes any more."""
        ...

    def census(self) -> Census:
        """A quick count of what was touched so far, while it is shown and in use."""
        ...

    def close(self) -> None: ...


@value
class Census:
    """At least so much was touched; the delta knows exactly."""

    files: int
    folders: int = 0  #: also those on the way to a file that was touched
    full: bool  #: the cap was reached


class Scale:
    """How much of a view may be read to tell what changed. A hole takes no room and is free to
    make, but reading it takes the time of all its bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._weight = 0

    def add(self, path: bytes, look: os.stat_result) -> None:
        self._weight += look.st_size
        if self._weight > self._most:
            raise Refused(
                "WORK_TOO_LARGE",
                f"{shown(path)}: what was written is together larger than {self._most} bytes.",
                remedy="Holes in files count as the bytes they stand for.",
            )


def private_tmpfs(ground: Ground, undo: contextlib.ExitStack) -> int:
    """Mount a tmpfs of bounded size over `ground.mounts`, and open it; `undo` unmounts it.

    Not in the run's room: rooms are removed, and no folder that is ever removed may hold a mount
    through which the workspace can be reached.
    """
    ground.mounts.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = str(ground.mounts)
    options = f"mode=700,size={ground.cap_bytes},nr_inodes={ground.cap_names}"
    kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    undo.callback(kernel.umount_detach, path)
    anchor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    undo.callback(os.close, anchor)
    return anchor


@contextlib.contextmanager
def shown_over(ground: Ground, anchor: int, mount: Callable[[], None]) -> Iterator[None]:
    """Over `ground.place` what `mount` mounts there, and on top of it the home as it is.

    `mount` runs with the folder `anchor` as its working directory. A step that fails undoes the
    steps before it. Mounts are detached: a child that is about to die may still stand in them.
    """
    home = str(ground.home) if ground.home.is_relative_to(ground.place) else None
    with contextlib.ExitStack() as undo:
        tree = -1
        if home is not None:
            tree = namespace.cloned(home, recursive=True)
            undo.callback(os.close, tree)
        with namespace.standing_in(f"/proc/self/fd/{anchor}"):
            mount()
            undo.callback(kernel.umount_detach, str(ground.place))
        if home is not None:
            kernel.move_mount(tree, home)
            undo.callback(kernel.umount_detach, home)
        yield
