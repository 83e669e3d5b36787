"""A workspace's own folder in the home: index, intents and stored versions; and its lock.

A space belongs to one workspace. A run holds the space's lock shared. A change holds it
exclusively, so nothing is ever merged below a run that is still reading. The first process to get
the lock after a crash finds the intent, if there is one, and finishes it.

Run folders are removable (`removal`) and hold plain files only. Engines mount over `mounts`, which
is never removed. The space of the project has no marker and is never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from actum import removal
from actum.errors import Refused
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.records.work_names import MET
from actum.store.whole_file import write_whole
from actum.workspace import commit, files
from actum.workspace.commit import Staged, Step
from actum.workspace.index import Index, Scanned, difference
from actum.workspace.tree import PERMISSIONS, Change, Delta, Entry, Kind, name_of, parent_of

#: Writes the records of a finished commit. Must be idempotent: it is called again after a crash.
Finish = Callable[[Mapping[str, Any]], None]


READY = "ready.json"  #: of a run folder: its item waits to be committed by any process
_OWNER = "owner"  #: the process that a run folder or a throwaway space belongs to


class Space:
    """One workspace's own folder in the home."""

    def __init__(
        self,
        home: Path,
        base: Path,
        *,
        exclusive: bool = False,
        throwaway: bool = False,
        looks: bool = False,
    ) -> None:
        """`throwaway`: for one command on a folder that is not the project; see `discard`.
        `looks`: for a reader that creates and writes nothing."""
        self.home = home
        self.base = base
        self.exclusive = exclusive  #: the project declares that only work items change it
        self.folder = home / "work" / _name_for(base)
        self._looks = looks
        if looks:
            return
        if throwaway:
            if base == home.parent:
                raise ValueError("the space of the project must not be removed")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The owner first: another process removes a marked space without one.
            (self.folder / _OWNER).write_text(current_owner())
            removal.mark(self.folder)
        for folder in (self.folder, self.run_folders, self.folder / "kept"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _base_of(self.folder) != base:
            write_whole(self.folder / "base", os.fsencode(base), synced=True)
            commit.sync_folder(self.folder)

    def discard(self) -> None:
        """Remove a throwaway space. Any other has no marker, and the removal is refused."""
        removal.remove(self.folder)

    @property
    def run_folders(self) -> Path:
        return self.folder / "rooms"

    @property
    def mounts(self) -> Path:
        """The mount point of engines. One per home: each run sees only its own mounts."""
        return self.home / "mount"

    @property
    def skip(self) -> frozenset[bytes]:
        """Names that are no part of the state: the home, and git's own records."""
        names = {b".git"}
        if self.home.parent == self.base:
            names.add(os.fsencode(self.home.name))
        return frozenset(names)

    @contextlib.contextmanager
    def held(self, *, alone: bool, wait: bool = True) -> Iterator[bool]:
        """Take the lock; yields whether it was free. The kernel releases it if its holder dies."""
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
        """The index, for one process at a time. A reader gets a copy in memory."""
        if self._looks:
            with contextlib.closing(Index.copied(self.folder / "index.db")) as copy:
                yield copy
            return
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
        """The current state on the disk."""
        with self.index() as index:
            return index.scan(self.base, self.skip)

    def compared(
        self, wanted: str, *, based_on: str = "", steps: Iterable[Step] = ()
    ) -> tuple[str, Delta | None]:
        """The hash of the current state on the disk, and its difference from the state `wanted`.

        ``None`` if the index holds neither that state nor `based_on`, from which `steps` lead to
        it. A project that cannot be read has the hash "". The index is not changed.
        """
        with self.index() as index:
            known: dict[bytes, Entry] | None = None
            state = index.state
            if state is not None and state.hash in (wanted, based_on):
                known = {b"": Entry(Kind.FOLDER, state.mode, b""), **dict(index.below(b""))}
                if state.hash != wanted:
                    _follow(steps, known)
            try:
                found, now = index.look(self.base, self.skip)
            except (OSError, Refused):
                return "", None
            if found.hash == wanted:
                return found.hash, ()
            if known is None:
                return found.hash, None
            now[b""] = Entry(Kind.FOLDER, found.mode, b"")
            return found.hash, difference(known.items(), now)

    def seen(
        self,
        index: Index,
        committed: str | None,
        paths: Iterable[bytes] = (),
    ) -> Scanned:
        """The current state. `committed` is the one that the last work item left.

        No scan is needed if the project declares that only work items change it, its mode excludes
        all other users, and the index holds the state `committed`. The entries at `paths` are
        checked even then.
        """
        if self.exclusive and committed is not None and self._is_private():
            believed = index.believed(committed)
            if believed is not None and all(self._is_known(index, path) for path in paths):
                return believed
        return index.scan(self.base, self.skip)

    def _is_private(self) -> bool:
        top = os.stat(self.base, follow_symlinks=False)
        return top.st_uid == os.geteuid() and not top.st_mode & 0o077

    def _is_known(self, index: Index, path: bytes) -> bool:
        """Whether one name on the disk equals its entry in the index."""
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

    def run_folder(self, name: str) -> Path:
        """Make the folder of one run, for staged and replaced content."""
        folder = self.run_folders / name
        removal.make(folder)
        self.own(folder)
        return folder

    def is_held(self, name: str) -> bool:
        """Whether a run is ready, and stored so that any process can commit it."""
        return (self.run_folders / name / READY).is_file()

    def let_go(self, name: str) -> None:
        """A held run cannot be committed: recovery closes it."""
        (self.run_folders / name / READY).unlink(missing_ok=True)

    def own(self, folder: Path) -> None:
        """Make this process the owner of a run folder: it stays while its owner lives."""
        (folder / _OWNER).write_text(current_owner())

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder for copies, removed at the end."""
        folder = self.run_folder(f"staging-{os.urandom(8).hex()}")
        try:
            yield folder
        finally:
            self.drop(folder)

    def drop(self, folder: Path) -> None:
        # A folder that cannot be removed safely stays: it holds only copies and blocks no run.
        with contextlib.suppress(removal.RemovalRefused, OSError):
            removal.remove(folder)

    def recover(self, finish: Finish, held: Container[str] = ()) -> bool:
        """Finish a decided change, under the exclusive lock. Returns whether there was one. The run
        folders in `held` stay."""
        left = [
            folder
            for folder in self.run_folders.iterdir()
            if folder.name not in held and not _in_use(folder)
        ]
        for folder in left:
            if not removal.is_removable(folder):
                removal.mark(folder)  # version 0.1 wrote no markers
        body = commit.pending_intent(self.folder)
        if body is not None:
            self._carry_through(body, finish, again=True)
        for folder in left:
            self.drop(folder)
        return body is not None

    def change(
        self, folder: Path, staged: Staged, record: Mapping[str, Any], finish: Finish
    ) -> None:
        """Make a staged delta the workspace's state; only while the lock is held exclusively."""
        commit.write_intent(self.folder, folder, staged, record)
        body = commit.pending_intent(self.folder)
        if body is not None:
            self._carry_through(body, finish, again=False)

    def _carry_through(self, body: Mapping[str, Any], finish: Finish, *, again: bool) -> None:
        folder = self.run_folders / body["room"]
        kept = self.folder / "kept" / body["room"]
        steps: Iterable[Step] = [Step.read(step) for step in body["steps"]]
        if folder.exists():  # else it was applied and stored before a crash
            if (folder / "new").exists():  # removed when everything was applied
                self._apply(steps, folder, again=again)
            met = commit.met_digests(folder)
            finish({**body["record"], MET: met} if body["record"] and met else body["record"])
            self._keep(folder, kept)
        else:
            finish(body["record"])
        commit.drop_intent(self.folder)

    def _apply(self, steps: Iterable[Step], folder: Path, *, again: bool) -> None:
        base = os.open(self.base, files.FOLDER_FLAGS)
        try:
            if again:
                steps = commit.left_to_do(steps, commit.backward_steps(folder), base, folder)
            commit.apply(steps, base, folder / "new")
        finally:
            os.close(base)

    def _keep(self, folder: Path, kept: Path) -> None:
        """Move what an undo needs to `kept`. From here on it is never removed."""
        if removal.is_removable(folder):
            removal.remove_part(folder, "new")
            for name in (_OWNER, READY):
                (folder / name).unlink(missing_ok=True)
            os.unlink(folder / removal.MARKER)
        os.rename(folder, kept)

    def backward(self, name: str) -> tuple[tuple[Step, ...], Path]:
        """The steps that undo a stored change, and the folder with the content they restore."""
        kept = self.folder / "kept" / name
        return commit.backward_steps(kept), kept / "old"


def delta_of(steps: Iterable[Step], index: Index) -> Delta:
    """The changes that steps make to the state in the index."""
    changes = (
        Change(
            step.path,
            index.entry(step.path),
            None if step.kind is None else Entry(step.kind, step.mode, bytes.fromhex(step.digest)),
        )
        for step in steps
    )
    return tuple(sorted(changes, key=lambda change: change.path))


def _follow(steps: Iterable[Step], entries: dict[bytes, Entry]) -> None:
    """Apply the steps of a commit to a listing."""
    for step in steps:
        if step.kind is None:
            entries.pop(step.path, None)
        else:
            entries[step.path] = Entry(step.kind, step.mode, bytes.fromhex(step.digest))


def _in_use(folder: Path) -> bool:
    """Whether its process is alive; it may wait for the lock to commit."""
    try:
        return is_alive((folder / _OWNER).read_text())
    except (FileNotFoundError, ValueError):
        return False  # its process died before it wrote its name


def spaces(home: Path) -> Iterator[Space]:
    """The permanent space of the project that holds the home. Throwaway spaces whose process is
    gone are removed.

    A project that was copied or moved with its home still has the space of its old path. Another
    project may be at that path now, so that space is left alone.
    """
    folder = home / "work"
    if not folder.is_dir():
        return
    for found in folder.iterdir():
        if removal.is_removable(found):
            if not _in_use(found):
                with contextlib.suppress(removal.RemovalRefused, OSError):
                    removal.remove(found)
            continue
        base = _base_of(found)
        if base == home.parent:
            yield Space(home, base)


def _name_for(base: Path) -> str:
    return blake3(os.fsencode(base)).hexdigest()[:16]


def _base_of(folder: Path) -> Path | None:
    """The workspace of a space; ``None`` if a power cut lost it before it was on the disk."""
    try:
        base = Path(os.fsdecode((folder / "base").read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return base if _name_for(base) == folder.name else None
