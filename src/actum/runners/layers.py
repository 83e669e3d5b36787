"""Layers that take the changes of a writable folder: made for a request, or ahead of it.

An overlay holds its layers by inode, not by name. So an interpreter can wait in layers that were
made before there was a request. When it is taken, `upper` and `work` are renamed to the layers of
that request's transaction (`LayersAhead`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from actum import removal
from actum.contract.call import Plan
from actum.contract.levels import is_within
from actum.errors import Refused
from actum.evidence.owner import current_owner, is_alive
from actum.sandbox.identity import TOOL_ID
from actum.value import value

#: Of one writable folder. opener.c attaches the folder at `lower` while it mounts the overlay.
LAYERS = ("lower", "upper", "work")
#: The name of a copied folder beside them, where a tool works on a copy.
COPY = "copy"
#: Those that an overlay keeps using.
_USED = ("upper", "work")
_OWNER, _BEGUN = "owner", "begun "
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
_ORIGIN = ("trusted.overlay.origin", "user.overlay.origin")


def place_of(plan: Plan, path: str) -> tuple[str, str] | None:
    """(folder, path in it) of the file that a tool has left at `path`; ``None`` if there is none.

    Only when no process of the tool is left: the check goes name by name.
    """
    grant = next((grant for grant in plan.layers if is_within(path, grant)), None)
    if grant is None:
        return None
    inside = os.path.relpath(path, grant)
    if copy := copy_in(plan.layers[grant]):
        return copy, inside
    upper = f"{plan.layers[grant]}/upper"
    above = upper
    shows = True  # whether the granted folder is visible where the upper layer is empty
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
    copy = f"{layers}/{COPY}"
    return copy if os.path.isdir(copy) else ""


def takes_marks(folder: str) -> bool:
    """Whether the file system of a folder with layers supports the attributes of an overlay.
    Without them the kernel mounts one but cannot replace a removed folder: as an ordinary user on a
    tmpfs before Linux 6.6, and on a ramfs."""
    prefix = "trusted" if os.geteuid() == 0 else "user"
    try:
        os.setxattr(f"{folder}/upper", f"{prefix}.actum.probe", b"")
        os.removexattr(f"{folder}/upper", f"{prefix}.actum.probe")
    except OSError:
        return False
    return True


def is_opaque(folder: str | int) -> bool:
    """Whether a folder of an upper layer hides the entries of the folder below it.

    Only the mark that this overlay uses counts, which no tool can set: root's is `trusted`, and the
    kernel stores an ordinary user's under another name if a tool sets it. For root's overlay the
    `user` mark is an attribute like any other.
    """
    try:
        return os.getxattr(folder, _OPAQUE[os.geteuid() != 0]) == b"y"
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
    return False


def is_copied_up(name: bytes, folder: int, found: os.stat_result) -> bool:
    """Whether a name in an upper layer was in the folder below when the tool first changed it.

    The overlay does not mark a file with several names, and a link cannot have the attribute.
    """
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return False
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.getxattr(f"/proc/self/fd/{handle}", _ORIGIN[os.geteuid() != 0])
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        return False
    finally:
        os.close(handle)
    return True


def claim(folder: Path) -> None:
    """Make a folder for layers. Recovery removes it when this process is gone."""
    # Another process may run recovery at any moment: until the folder holds the name of its owner,
    # its own name does.
    begun = folder.with_name(f"{_BEGUN}{current_owner()} {folder.name}")
    removal.make(begun)
    (begun / _OWNER).write_text(current_owner())
    rename_claimed(begun, folder)


def rename_claimed(claimed: Path, folder: Path) -> None:
    """Give a claimed folder the name of an execution."""
    try:
        os.rename(claimed, folder)
    except OSError as error:
        removal.remove(claimed)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # Two processes got past the check of the id at the same moment.
        raise Refused(
            "EXECUTION_RUNNING",
            f"execution_id: another process carries out {folder.name.rpartition('-')[0]} now.",
            remedy="Nothing ran. Wait for its end, or use another id.",
        ) from error


def is_claimed(folder: Path) -> bool:
    """Whether the process that made the folder still runs."""
    try:
        if folder.name.startswith(_BEGUN):
            return is_alive(folder.name.removeprefix(_BEGUN).rpartition(" ")[0])
        return is_alive((folder / _OWNER).read_text())
    except (FileNotFoundError, ValueError):
        return False


def make_layers(folder: Path, top: os.stat_result | None = None) -> None:
    """Make the layers of one writable folder; the upper one gets the folder's mode (`top`)."""
    removal.make(folder)
    for layer in LAYERS:
        os.mkdir(f"{folder}/{layer}", 0o700)
    if os.geteuid() == 0:
        # Inside the sandbox the owner of the folder is shown as the tool (opener.c).
        os.chown(f"{folder}/upper", TOOL_ID, TOOL_ID)
    if top is not None:
        give_mode(folder, top)


def give_mode(folder: Path, top: os.stat_result) -> None:
    """Give the upper layer the mode of the writable folder."""
    os.chmod(f"{folder}/upper", top.st_mode & 0o7777)


@value
class LayersAhead:
    """The layers of a waiting interpreter, for which there is no transaction yet."""

    folder: Path
    folders: Mapping[str, str]  #: writable folder -> folder of its layers

    @classmethod
    def beside(cls, layers: Mapping[str, str]) -> LayersAhead:
        """New layers for the same writable folders, in the same home."""
        transactions = Path(next(iter(layers.values()))).parent.parent
        folder = transactions / f"waiting-{os.urandom(8).hex()}"
        folders = {grant: str(folder / str(number)) for number, grant in enumerate(layers)}
        claim(folder)
        try:
            for grant, each in folders.items():
                make_layers(Path(each), os.stat(grant, follow_symlinks=False))
        except BaseException:
            removal.remove(folder)
            raise
        return cls(folder=folder, folders=folders)

    def serves(self, layers: Mapping[str, str]) -> bool:
        """Whether these equal `layers`, which were made for a request just now: nothing was
        written to them, and the top has the same mode and owner."""
        return self.folders.keys() == layers.keys() and all(
            _top(folder) == _top(layers[grant]) and not os.listdir(f"{folder}/upper")
            for grant, folder in self.folders.items()
        )

    def move_to(self, layers: Mapping[str, str]) -> None:
        """Replace `layers`, which are empty. The rest of this folder is to be discarded."""
        for grant, folder in self.folders.items():
            for layer in _USED:
                os.rename(f"{folder}/{layer}", f"{layers[grant]}/{layer}")

    def discard(self) -> None:
        """Remove the folder. If that fails, the next recovery removes it."""
        with contextlib.suppress(removal.RemovalRefused, OSError):
            removal.remove(self.folder)


def _top(folder: str) -> tuple[int, int, int]:
    found = os.lstat(f"{folder}/upper")
    return found.st_mode, found.st_uid, found.st_gid
