"""The frozen state of a level of work items: a copy of the workspace that nothing changes.

Items of one level are committed while others of it still run, or have not begun. So their lower
layer cannot be the workspace itself. Files up to `_COPIED_BYTES` are copied. Larger ones get a
second name, which costs nothing: a commit replaces files by rename, and so does git with its packs.
A program that edits such a large file in place changes it here too; then the next commit finds a
change that no item has made, and fails. Files keep their times, so builds do not start over.

The copy is in a run folder, has an index of its own, and is removed when the level has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from actum.errors import Refused
from actum.value import value
from actum.workspace import files
from actum.workspace.copies import copy_tree
from actum.workspace.index import Index, Scanned
from actum.workspace.space import Space

_COPIED_BYTES = 1 << 20
_TRIES = 3
#: A name was removed, or replaced by one of another kind, while it was copied.
_REPLACED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_INDEX = "index.db"


@value(kw_only=False)
class LevelBase:
    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @contextlib.contextmanager
    def index(self) -> Iterator[Index]:
        """Its index. All items of the level read it, and none writes to it."""
        with contextlib.closing(Index.fixed(self.folder / _INDEX)) as index:
            yield index

    def scanned(self) -> Scanned:
        with self.index() as index:
            found = index.scanned_since(0)
        if found is None:
            raise Refused(
                "WORK_LEVEL_LOST",
                f"{self.folder} does not hold the state of a level.",
                remedy="Nothing ran. Run the work file again.",
            )
        return found


@contextlib.contextmanager
def frozen(space: Space) -> Iterator[LevelBase]:
    """Freeze the workspace; requires the lock, shared. Removed at the end."""
    folder = space.run_folder(f"level-{os.urandom(8).hex()}")
    try:
        yield _made(space, folder)
    finally:
        space.drop(folder)


def _made(space: Space, folder: Path) -> LevelBase:
    for number in range(_TRIES):
        base = LevelBase(folder / str(number))
        base.folder.mkdir(mode=0o700)
        with space.index() as index:
            wanted = index.scan(space.base, space.skip)
        base.tree.mkdir(mode=0o700)
        source, target = _opened(space.base), _opened(base.tree)
        try:
            # With git's own records: the items see them, and they are no part of the state.
            copy_tree(source, target, space.skip - {b".git"}, linked=_is_linked)
        except OSError as error:
            if error.errno not in _REPLACED:
                raise
            continue
        finally:
            os.close(source)
            os.close(target)
        # Closed, all of it is in that one file.
        with contextlib.closing(Index(base.folder / _INDEX)) as index:
            if index.scan(base.tree, space.skip).state == wanted.state:
                return base
    raise Refused(
        "WORKSPACE_BUSY",
        f"{space.base} was changed while it was copied, {_TRIES} times.",
        remedy="Nothing ran. End the program that writes to it, then run the work file again.",
    )


def _is_linked(look: os.stat_result) -> bool:
    """Whether a name gets a second name instead of a copy."""
    if stat.S_ISREG(look.st_mode):
        return look.st_size > _COPIED_BYTES
    return not stat.S_ISLNK(look.st_mode)


def _opened(folder: Path) -> int:
    return os.open(folder, files.FOLDER_FLAGS)
