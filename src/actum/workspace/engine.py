"""The port of the engines that keep a work item's changes apart from the workspace.

An engine shows the workspace at its own path to one process and its children, stores every change
separately, and lists the changes afterwards. Dropping the engine leaves the workspace as it was.
There are two: the cost of `overlay` grows with the changes, the cost of `copy` with the workspace.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
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
    """The paths and limits that an engine works with."""

    base: Path  #: the folder that holds the state
    place: Path  #: where it is shown; another folder than `base` only in a replay
    mounts: Path  #: an empty folder that is never removed; the engine mounts its own tmpfs over it
    home: Path  #: shown unchanged at its own path if it is in `place`
    skip: frozenset[bytes]  #: names directly below the top that are no part of the state
    cap_bytes: int = 256 * MIB  #: limit on written bytes: the kernel reports ENOSPC
    cap_names: int = 65_536
    #: Where a copy is made that containers can be shown, in a removable folder. An engine finds
    #: paths of the host, and no mount of this process. ``None``: in `mounts`.
    on_host: Path | None = None

    @property
    def inner_home(self) -> str | None:
        """The home's path in the shown tree, where a mount point for it must exist."""
        if not self.home.is_relative_to(self.place):
            return None
        return str(self.home.relative_to(self.place))

    @property
    def left_out(self) -> frozenset[bytes]:
        """`skip`, and the home if it is directly below the top of the shown tree."""
        inner = self.inner_home
        return self.skip if inner is None else self.skip | {os.fsencode(inner)}


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def shown(self) -> int:
        """The workspace with all changes, as an open folder; only inside of `show`."""
        ...

    @property
    def host_folders(self) -> Mapping[str, str]:
        """The place of the view -> the folder of the host that is shown there now; empty if it is
        a mount of this process."""
        ...

    def owner(self, look: os.stat_result) -> tuple[int, int]:
        """The owner in the workspace of a name in `shown`."""
        ...

    def show(self) -> contextlib.AbstractContextManager[None]:
        """Show the workspace with all changes so far, writable, at its place."""
        ...

    def show_for_trial(self) -> contextlib.AbstractContextManager[None]:
        """As `show`; changes made meanwhile are dropped at the end."""
        ...

    def delta(self, index: Index) -> Delta:
        """The difference from `index`. Only inside of `show`, when no process writes any more."""
        ...

    def census(self) -> Census:
        """A quick count of changed names, while the view is in use."""
        ...

    def close(self) -> None: ...


@value
class Census:
    """A lower bound of the changed names; the delta is exact."""

    files: int
    folders: int = 0  #: includes the parents of changed files
    full: bool  #: the cap was reached


class Scale:
    """The limit on bytes that are read to find changes. A hole takes no space and is free to make,
    but reading it takes the time of all its bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._weight = 0

    def add(self, path: bytes, look: os.stat_result) -> None:
        self._weight += look.st_size
        if self._weight > self._most:
            raise Refused(
                "WORK_TOO_LARGE",
                f"{shown(path)}: the changed files are together larger than {self._most} bytes.",
                remedy="Holes in files count with their full size.",
            )


def private_tmpfs(ground: Ground, undo: contextlib.ExitStack) -> int:
    """Mount a tmpfs of bounded size over `ground.mounts`, and open it; `undo` unmounts it.

    Not in the run's folder: that is removed later, and no folder that is ever removed may hold a
    mount through which the workspace can be reached.
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
    """Mount over `ground.place` with `mount`, and mount the home unchanged on top of it.

    `mount` runs with the folder `anchor` as its working directory. A step that fails undoes the
    steps before it. Mounts are detached: a child that is about to die may still have its working
    directory there.
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
