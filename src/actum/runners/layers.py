"""Layers that take the changes of a writable folder: made, found again, and made ahead.

An overlay holds its layers by the folders themselves and not by their names. So an interpreter can
wait in layers that were made before there was a request, and when it is taken, `upper` and `work`
are renamed to where the transaction of that request looks for them (`LayersAhead`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from actum import removal
from actum.contract.call import Plan
from actum.contract.levels import is_within
from actum.evidence.owner import current_owner, is_alive
from actum.sandbox.identity import TOOL_ID
from actum.value import value

#: Of one writable folder. `lower` is where opener.c attaches the folder for a moment.
LAYERS = ("lower", "upper", "work")
#: Those that an overlay keeps using.
_USED = ("upper", "work")
_OWNER, _BEGUN = "owner", "begun "
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


def place_of(plan: Plan, path: str) -> tuple[str, str] | None:
    """(folder, path in it) of what a tool has left at `path`; ``None`` if it left nothing there.

    Only when no process of the tool is left: names are looked at one by one.
    """
    grant = next((grant for grant in plan.layers if is_within(path, grant)), None)
    if grant is None:
        return None
    inside = os.path.relpath(path, grant)
    if copy := copy_in(plan.layers[grant]):
        return copy, inside
    upper = f"{plan.layers[grant]}/upper"
    above = upper
    shows = True  # whether the granted folder shows where the upper layer holds nothing
    for name in inside.split("/"):
        shows = shows and not is_opaque(above)
        above = f"{above}/{name}"
        try:
            look = os.lstat(above)
        except (FileNotFoundError, NotADirectoryError):
            return (grant, inside) if shows else None
        if stat.S_ISCHR(look.st_mode) and look.st_rdev == 0:
            return None  # a whiteout: removed
        if not stat.S_ISDIR(look.st_mode):
            break
    return upper, inside


def copy_in(layers: str) -> str:
    """The copy that a folder with layers holds instead of an overlay; empty if it holds none."""
    copy = f"{layers}/copy"
    return copy if os.path.isdir(copy) else ""


def takes_marks(folder: str) -> bool:
    """Whether the file system of a folder with layers keeps the marks of an overlay. Without marks
    the kernel mounts one and cannot make a removed folder anew: as an ordinary user on a tmpfs
    before Linux 6.6, and on a ramfs."""
    prefix = "trusted" if os.geteuid() == 0 else "user"
    try:
        os.setxattr(f"{folder}/upper", f"{prefix}.actum.probe", b"")
        os.removexattr(f"{folder}/upper", f"{prefix}.actum.probe")
    except OSError:
        return False
    return True


def is_opaque(folder: str | int) -> bool:
    """Whether a folder of an upper layer hides what the folder below it holds.

    An ordinary user's overlay has only marks of the second kind. A tool cannot set one: the kernel
    stores such a mark of a tool under another name, or refuses it.
    """
    for mark in _OPAQUE[os.geteuid() != 0 :]:
        try:
            return os.getxattr(folder, mark) == b"y"
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise
    return False


def claim(folder: Path) -> None:
    """Make a folder for layers. Recovery removes it when this process is gone."""
    # Another process may look for what is left of killed ones at any moment: until the folder
    # names its owner, its own name does.
    begun = folder.with_name(f"{_BEGUN}{current_owner()} {folder.name}")
    removal.make(begun)
    (begun / _OWNER).write_text(current_owner())
    os.rename(begun, folder)


def is_claimed(folder: Path) -> bool:
    """Whether the process that made the folder still runs."""
    try:
        if folder.name.startswith(_BEGUN):
            return is_alive(folder.name.removeprefix(_BEGUN).rpartition(" ")[0])
        return is_alive((folder / _OWNER).read_text())
    except (FileNotFoundError, ValueError):
        return False


def make_layers(room: Path, top: os.stat_result) -> None:
    """Make the layers of one writable folder; the upper one is as the folder is (`top`)."""
    removal.make(room)
    for layer in LAYERS:
        (room / layer).mkdir(mode=0o700)
    if os.geteuid() == 0:
        # Inside, the owner of the folder is shown as the tool (opener.c).
        os.chown(room / "upper", TOOL_ID, TOOL_ID)
    os.chmod(room / "upper", top.st_mode & 0o7777)


@value
class LayersAhead:
    """Layers of an interpreter that waits, and for which there is no transaction yet."""

    folder: Path
    rooms: Mapping[str, str]  #: writable folder -> folder of its layers

    @classmethod
    def beside(cls, layers: Mapping[str, str]) -> LayersAhead:
        """New ones for the same writable folders, in the home where `layers` are."""
        transactions = Path(next(iter(layers.values()))).parent.parent
        folder = transactions / f"waiting-{secrets.token_hex(8)}"
        rooms = {grant: str(folder / str(number)) for number, grant in enumerate(layers)}
        claim(folder)
        try:
            for grant, room in rooms.items():
                make_layers(Path(room), os.stat(grant, follow_symlinks=False))
        except BaseException:
            removal.remove(folder)
            raise
        return cls(folder=folder, rooms=rooms)

    def serves(self, layers: Mapping[str, str]) -> bool:
        """Whether these are as `layers`, which were made for a request just now: nothing was
        written to them, and the top has the same mode and owner."""
        return self.rooms.keys() == layers.keys() and all(
            _top(room) == _top(layers[grant]) and not os.listdir(f"{room}/upper")
            for grant, room in self.rooms.items()
        )

    def move_to(self, layers: Mapping[str, str]) -> None:
        """Become `layers`, which are empty. What is left here is to be discarded."""
        for grant, room in self.rooms.items():
            for layer in _USED:
                os.rename(f"{room}/{layer}", f"{layers[grant]}/{layer}")

    def discard(self) -> None:
        """What resists stays until the next recovery."""
        with contextlib.suppress(removal.RemovalRefused, OSError):
            removal.remove(self.folder)


def _top(room: str) -> tuple[int, int, int]:
    found = os.lstat(f"{room}/upper")
    return found.st_mode, found.st_uid, found.st_gid
