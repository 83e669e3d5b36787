"""The index: every folder's entries with their digests, so that hashing costs what changed.

One SQLite file beside the workspace's other records, a row per folder. It is a cache: whatever it
holds can be found again by a scan, and a scan trusts it only where the kernel's own stamps (inode,
size, ctime, mtime) are those it saw, and were old enough when it saw them. Losing it costs time.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from actum.errors import Refused
from actum.value import field, value
from actum.workspace import files
from actum.workspace.tree import (
    Change,
    Delta,
    Entry,
    Kind,
    folder_digest,
    joined,
    name_of,
    parent_of,
    shown,
    state_hash,
)

_RECORD = struct.Struct("<cH32sQqqQ")
#: A file system stamps with the time of the last tick. What changed that recently may change again
#: without a new stamp, so it is read again (git calls such an entry racy).
_TICK_NS = 20_000_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS folders (
    path BLOB PRIMARY KEY, seen_ns INTEGER NOT NULL, names BLOB NOT NULL, records BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS top (
    one INTEGER PRIMARY KEY CHECK (one = 1), mode INTEGER NOT NULL, digest BLOB NOT NULL
) STRICT;
"""


@value(kw_only=False)
class State:
    """A whole state, in two values."""

    mode: int
    digest: bytes

    @property
    def hash(self) -> str:
        return state_hash(self.mode, self.digest)


@value
class Scanned:
    state: State
    entries: int
    read: int  #: files whose bytes had to be read
    strangers: int  #: entries of another owner than the topmost folder's


@value(frozen=False, kw_only=False)
class _Folder:
    seen_ns: int
    entries: dict[bytes, Entry]
    dirty: bool = False
    folders: list[bytes] = field(default_factory=list)


@value(frozen=False, kw_only=False)
class Preview:
    """A state that is not there yet: the index with a delta applied, in memory."""

    state: State
    folders: dict[bytes, dict[bytes, Entry] | None] = field(default_factory=dict)


class Index:
    """One workspace's index. Used by one process at a time, under the workspace's lock."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        # Not synced: after a power cut it is at worst out of date, which a scan finds, or broken,
        # which `open` finds; the state itself never depends on it.
        self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {_SCHEMA}")
        #: Folders that were asked for since the last change; a delta asks for each several times.
        self._asked: dict[bytes, dict[bytes, Entry]] = {}

    @classmethod
    def open(cls, path: Path) -> Index:
        try:
            return cls(path)
        except sqlite3.DatabaseError:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            return cls(path)

    def close(self) -> None:
        self._database.close()

    @property
    def state(self) -> State | None:
        row = self._database.execute("SELECT mode, digest FROM top").fetchone()
        return None if row is None else State(row[0], row[1])

    def entries(self, folder: bytes) -> dict[bytes, Entry]:
        """What a folder holds; empty for one that is not there."""
        found = self._asked.get(folder)
        if found is None:
            kept = self._load(folder)
            found = self._asked[folder] = {} if kept is None else kept.entries
        return found

    def entry(self, path: bytes) -> Entry | None:
        if not path:
            state = self.state
            return None if state is None else Entry(Kind.FOLDER, state.mode, state.digest)
        return self.entries(parent_of(path)).get(name_of(path))

    def below(self, folder: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Every entry below a folder, parents first."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            for name, entry in sorted(self.entries(here).items()):
                path = joined(here, name)
                yield path, entry
                if entry.kind is Kind.FOLDER:
                    waiting.append(path)

    def scan(self, top: Path, skip: frozenset[bytes] = frozenset()) -> Scanned:
        """Bring the index up to date with the folder `top`, reading only what may have changed.

        `skip` are names right below the top that are no part of the state.
        """
        anchor = os.open(top, files.FOLDER_FLAGS)
        try:
            return self._scan(anchor, skip)
        finally:
            os.close(anchor)

    def _scan(self, anchor: int, skip: frozenset[bytes]) -> Scanned:
        found_top = os.fstat(anchor)
        order: list[bytes] = []
        found: dict[bytes, _Folder] = {}
        waiting = [b""]
        last = self.state
        recorded = {b"": b"" if last is None else last.digest}
        entries = read = strangers = 0
        while waiting:
            path = waiting.pop()
            order.append(path)
            seen_ns = time.time_ns()
            known = self._load(path)
            here = _Folder(seen_ns, {}, dirty=known is None)
            found[path] = here
            folder = files.open_folder(path, anchor)
            try:
                for name in sorted(map(os.fsencode, os.listdir(folder))):
                    if not path and name in skip:
                        continue
                    look = files.look(name, folder)
                    if look is None:
                        continue  # gone between two calls: the state is what is there
                    if look.st_dev != found_top.st_dev:
                        raise _another_device(joined(path, name))
                    entries += 1
                    strangers += (look.st_uid, look.st_gid) != (
                        found_top.st_uid,
                        found_top.st_gid,
                    )
                    before = known.entries.get(name) if known else None
                    if stat.S_ISDIR(look.st_mode):
                        where = joined(path, name)
                        entry = files.entry_of(look, before.digest if before else b"")
                        here.dirty |= before is None or before[:2] != entry[:2]
                        here.entries[name] = entry
                        here.folders.append(name)
                        recorded[where] = entry.digest
                        waiting.append(where)
                        continue
                    if before is not None and known and _unchanged(before, look, known.seen_ns):
                        here.entries[name] = before
                        continue
                    here.dirty = True
                    read += 1
                    here.entries[name] = files.entry_of(look, files.read_digest(name, folder, look))
            finally:
                os.close(folder)
            if known is not None and known.entries.keys() != here.entries.keys():
                here.dirty = True
        digests: dict[bytes, bytes] = {}
        for path in reversed(order):
            here = found[path]
            for name in here.folders:
                entry, digest = here.entries[name], digests[joined(path, name)]
                here.dirty = here.dirty or entry.digest != digest
                here.entries[name] = entry._replace(digest=digest)
            # Nothing in it differs from the last look: its hash does not either.
            known_digest = b"" if here.dirty else recorded.get(path, b"")
            digests[path] = known_digest or folder_digest(here.entries)
        state = State(found_top.st_mode & 0o777, digests[b""])
        self._replace_all(found, state)
        return Scanned(state=state, entries=entries, read=read, strangers=strangers)

    def preview(self, delta: Delta) -> Preview:
        """The state that `delta` leads to. Costs the changes and the width of their folders."""
        current = self.state
        if current is None:
            raise ValueError("the index was never filled")
        mode = current.mode
        folders: dict[bytes, dict[bytes, Entry] | None] = {}
        touched: set[bytes] = set()

        def opened(path: bytes) -> dict[bytes, Entry]:
            found = folders.get(path)
            if found is None:
                found = folders[path] = {} if path in gone else dict(self.entries(path))
            return found

        gone = {
            change.path
            for change in delta
            if change.before is not None
            and change.before.kind is Kind.FOLDER
            and (change.after is None or change.after.kind is not Kind.FOLDER)
        }
        for change in delta:
            if not change.path:
                mode = change.after.mode if change.after else mode
                continue
            here = opened(parent_of(change.path))
            if change.after is None:
                here.pop(name_of(change.path), None)
            else:
                here[name_of(change.path)] = change.after
                if change.after.kind is Kind.FOLDER:
                    opened(change.path)
            touched.add(parent_of(change.path))
        self._carry_up(folders, touched, opened)
        for path in gone:
            folders[path] = None
        top = folder_digest(opened(b"")) if folders.get(b"") is not None else current.digest
        return Preview(State(mode, top), folders)

    @staticmethod
    def _carry_up(
        folders: Mapping[bytes, object],
        touched: set[bytes],
        opened: Callable[[bytes], dict[bytes, Entry]],
    ) -> None:
        """Digests of changed folders, deepest first, into their parents."""
        waiting = {path for path in (*touched, *folders) if path}
        for path in list(waiting):
            while path := parent_of(path):
                waiting.add(path)
        for path in sorted(waiting, key=lambda one: one.count(b"/"), reverse=True):
            parent = opened(parent_of(path))
            entry = parent.get(name_of(path))
            if entry is not None and entry.kind is Kind.FOLDER:
                parent[name_of(path)] = entry._replace(digest=folder_digest(opened(path)))

    def accept(self, preview: Preview) -> None:
        """The previewed state is the state now. Stamps of its files are found by the next scan."""
        self._asked.clear()
        with _transaction(self._database) as cursor:
            for path, entries in preview.folders.items():
                if entries is None:
                    cursor.execute("DELETE FROM folders WHERE path = ?", (path,))
                else:
                    # What did not change is still known; what did has stamps that no scan finds
                    # again, because it was looked at in another place.
                    known = self._load(path)
                    _store(cursor, path, _Folder(known.seen_ns if known else 0, entries))
            _store_top(cursor, preview.state)

    def _load(self, path: bytes) -> _Folder | None:
        row = self._database.execute(
            "SELECT seen_ns, names, records FROM folders WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        names = row[1].split(b"\0") if row[1] else []
        return _Folder(
            row[0],
            {
                # Made without the checks of a call: a wide folder holds thousands.
                name: _new(Entry, (_KINDS[record[0]], *record[1:]))
                for name, record in zip(names, _RECORD.iter_unpack(row[2]), strict=True)
            },
        )

    def _replace_all(self, found: Mapping[bytes, _Folder], state: State) -> None:
        self._asked.clear()
        with _transaction(self._database) as cursor:
            known = {row[0] for row in cursor.execute("SELECT path FROM folders")}
            cursor.executemany(
                "DELETE FROM folders WHERE path = ?", [(path,) for path in known - found.keys()]
            )
            for path, folder in found.items():
                if folder.dirty or path not in known:
                    _store(cursor, path, folder)
            _store_top(cursor, state)


_new = tuple.__new__
_KINDS = {kind.value.encode(): kind for kind in Kind}


class _transaction:  # noqa: N801 -- reads as a statement
    def __init__(self, database: sqlite3.Connection) -> None:
        self._cursor = database.cursor()

    def __enter__(self) -> sqlite3.Cursor:
        return self._cursor.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_rest: object) -> None:
        self._cursor.execute("COMMIT" if kind is None else "ROLLBACK")


def _store(cursor: sqlite3.Cursor, path: bytes, folder: _Folder) -> None:
    names = sorted(folder.entries)
    records = b"".join(
        _RECORD.pack(
            entry.kind.value.encode(),
            entry.mode,
            entry.digest,
            entry.size,
            entry.mtime_ns,
            entry.ctime_ns,
            entry.inode,
        )
        for entry in map(folder.entries.__getitem__, names)
    )
    cursor.execute(
        "INSERT OR REPLACE INTO folders (path, seen_ns, names, records) VALUES (?, ?, ?, ?)",
        (path, folder.seen_ns, b"\0".join(names), records),
    )


def _store_top(cursor: sqlite3.Cursor, state: State) -> None:
    cursor.execute(
        "INSERT OR REPLACE INTO top (one, mode, digest) VALUES (1, ?, ?)",
        (state.mode, state.digest),
    )


def _unchanged(before: Entry, look: os.stat_result, seen_ns: int) -> bool:
    return (
        before.size == look.st_size
        and before.mtime_ns == look.st_mtime_ns
        and before.ctime_ns == look.st_ctime_ns
        and before.inode == look.st_ino
        and max(look.st_ctime_ns, look.st_mtime_ns) < seen_ns - _TICK_NS
    )


def difference(before: Iterable[tuple[bytes, Entry]], after: Mapping[bytes, Entry]) -> Delta:
    """What leads from one full listing to another: the slow way, for engines without an upper."""
    known = dict(before)
    changes = [
        Change(path, known.get(path), after.get(path))
        for path in {*known, *after}
        if not _alike(known.get(path), after.get(path))
    ]
    return tuple(sorted(changes, key=lambda change: change.path))


def _alike(before: Entry | None, after: Entry | None) -> bool:
    if before is None or after is None:
        return before is after
    if before.kind is Kind.FOLDER and after.kind is Kind.FOLDER:
        return before.mode == after.mode  # what is in it are changes of their own
    return before.same_state(after)


def _another_device(path: bytes) -> Refused:
    return Refused(
        "WORKSPACE_HAS_MOUNTS",
        f"{shown(path)} lies on another file system than the workspace.",
        remedy="Move it out of the workspace, or unmount it.",
    )
