"""Where a workspace's index, intents and kept versions live, and who may use it when.

A space belongs to one folder. Those who run on it hold its lock shared; whoever changes it holds
it alone, so nothing is ever merged below a run that is still looking. Whoever gets the lock first
after a crash finds the intent, if there is one, and carries it through.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from actum.evidence.owner import current_owner, is_alive
from actum.store.whole_file import write_whole
from actum.workspace import commit, files
from actum.workspace.commit import Staged, Step
from actum.workspace.index import Index, Scanned
from actum.workspace.tree import PERMISSIONS, Kind, name_of, parent_of

#: Recorded by whoever finishes a commit. Called again after a crash: it must not mind.
Finish = Callable[[Mapping[str, Any]], None]


class Space:
    """One workspace's own folder below the home."""

    def __init__(self, home: Path, base: Path, *, exclusive: bool = False) -> None:
        self.home = home
        self.base = base
        self.exclusive = exclusive  #: only work items change it, says whoever owns it
        self.folder = home / "work" / _name_for(base)
        for folder in (self.folder, self.folder / "rooms", self.folder / "kept"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _base_of(self.folder) != base:
            write_whole(self.folder / "base", os.fsencode(base), synced=True)
            commit.sync_folder(self.folder)

    @property
    def skip(self) -> frozenset[bytes]:
        """What is no part of the state: the home, and git's own records of it."""
        names = {b".git"}
        if self.home.parent == self.base:
            names.add(os.fsencode(self.home.name))
        return frozenset(names)

    @contextlib.contextmanager
    def held(self, *, alone: bool, wait: bool = True) -> Iterator[bool]:
        """The lock; yields whether it was got. The kernel lets go of it when its holder dies."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
            try:
                fcntl.flock(descriptor, how if wait else how | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def index(self) -> Iterator[Index]:
        """The index, for one process at a time."""
        descriptor = os.open(self.folder / "index.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            index = Index.open(self.folder / "index.db")
            try:
                yield index
            finally:
                index.close()
        finally:
            os.close(descriptor)

    def scan(self) -> Scanned:
        """The state as it is on the disk now."""
        with self.index() as index:
            return index.scan(self.base, self.skip)

    def seen(
        self,
        index: Index,
        committed: str | None,
        paths: Iterable[bytes] = (),
        since_ns: int | None = None,
    ) -> Scanned:
        """The state as it is now. `committed` is the one that the last work item left.

        It is believed without a scan if this is said to be nobody else's, is closed to everybody
        else, and is as the last work item left it, at `paths` for certain. With `since_ns`, what
        somebody has found who looked after that moment will do.
        """
        if self.exclusive and committed is not None and self._is_private():
            believed = index.believed(committed)
            if believed is not None and all(self._is_known(index, path) for path in paths):
                return believed
        found = None if since_ns is None else index.scanned_since(since_ns)
        return found or index.scan(self.base, self.skip)

    def _is_private(self) -> bool:
        top = os.stat(self.base, follow_symlinks=False)
        return top.st_uid == os.geteuid() and not top.st_mode & 0o077

    def _is_known(self, index: Index, path: bytes) -> bool:
        """Whether one name on the disk is what the index says."""
        known = index.entry(path)
        if not path:
            mode = os.stat(self.base, follow_symlinks=False).st_mode
            return known is not None and known.mode == mode & PERMISSIONS
        base = os.open(self.base, files.FOLDER_FLAGS)
        try:
            folder = files.open_folder(parent_of(path), base)
        except (FileNotFoundError, NotADirectoryError):
            return known is None
        finally:
            os.close(base)
        try:
            look = files.look(name_of(path), folder)
            if look is None or known is None:
                return look is None and known is None
            if known.kind is Kind.FOLDER:
                return files.entry_of(look, known.digest) == known
            return files.entry_of(look, files.read_digest(name_of(path), folder, look)) == known
        finally:
            os.close(folder)

    def room(self, name: str) -> Path:
        folder = self.folder / "rooms" / name
        folder.mkdir(mode=0o700)
        (folder / "owner").write_text(current_owner())
        return folder

    def drop(self, room: Path) -> None:
        shutil.rmtree(room, ignore_errors=True)

    def recover(self, finish: Finish) -> bool:
        """Carry through what was decided; only while the lock is held alone. True if there was."""
        body = commit.pending_intent(self.folder)
        if body is not None:
            self._carry_through(body, finish, again=True)
        for room in (self.folder / "rooms").iterdir():
            if not _in_use(room):
                self.drop(room)
        return body is not None

    def change(self, room: Path, staged: Staged, record: Mapping[str, Any], finish: Finish) -> None:
        """Make a staged delta the workspace's state; only while the lock is held alone."""
        commit.write_intent(self.folder, room, staged, record)
        body = commit.pending_intent(self.folder)
        if body is not None:
            self._carry_through(body, finish, again=False)

    def _carry_through(self, body: Mapping[str, Any], finish: Finish, *, again: bool) -> None:
        room = self.folder / "rooms" / body["room"]
        kept = self.folder / "kept" / body["room"]
        steps: Iterable[Step] = [Step.read(step) for step in body["steps"]]
        if room.exists():  # else it was applied and kept already, and the intent outlived a crash
            base = os.open(self.base, files.FOLDER_FLAGS)
            try:
                if again:
                    steps = commit.left_to_do(steps, commit.backward_steps(room), base, room)
                commit.apply(steps, base, room / "new")
            finally:
                os.close(base)
            finish(body["record"])
            os.rename(room, kept)
            shutil.rmtree(kept / "new", ignore_errors=True)
        else:
            finish(body["record"])
        commit.drop_intent(self.folder)

    def backward(self, name: str) -> tuple[tuple[Step, ...], Path]:
        """How a kept change is undone: the steps, and the folder with what they put back."""
        kept = self.folder / "kept" / name
        return commit.backward_steps(kept), kept / "old"


def _in_use(room: Path) -> bool:
    """Whether its process still is there, which may wait for the lock to commit."""
    try:
        return is_alive((room / "owner").read_text())
    except (FileNotFoundError, ValueError):
        return False  # it died before it said who it was


def spaces(home: Path) -> Iterator[Space]:
    """Every space of a home whose folder is still there."""
    folder = home / "work"
    if not folder.is_dir():
        return
    for found in folder.iterdir():
        base = _base_of(found)
        if base is not None and base.is_dir():
            yield Space(home, base)


def _name_for(base: Path) -> str:
    return blake3(os.fsencode(base)).hexdigest()[:16]


def _base_of(folder: Path) -> Path | None:
    """Whose space it is; ``None`` if that was lost with the power before it was on the disk."""
    try:
        base = Path(os.fsdecode((folder / "base").read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return base if _name_for(base) == folder.name else None
