"""The index: every folder's entries with their digests, so that the cost of hashing grows with the
changes.

One SQLite file beside the workspace's other records, a row per folder. It is a cache: a scan can
rebuild all of it, and trusts an entry only where the kernel's own stamps are the same as then
(`workspace.stamps`). Losing it costs time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from actum.evidence.owner import this_boot
from actum.value import field, replace, value
from actum.workspace import files
from actum.workspace.packed import STAMP_BYTES, UNKNOWN, Packed, packed_names
from actum.workspace.stamps import Looker, Stamped, proves
from actum.workspace.tree import (
    DIGEST_BYTES,
    Change,
    Delta,
    Entry,
    Kind,
    entry_in,
    joined,
    line_of,
    name_of,
    parent_of,
    state_hash,
)

#: Of the tables. Those of another version are dropped, because a scan can rebuild them.
_VERSION = 5
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS folders (
    path BLOB NOT NULL UNIQUE, names BLOB NOT NULL, lines BLOB NOT NULL, lengths BLOB NOT NULL,
    stamps BLOB NOT NULL
) STRICT; -- with a rowid: rows are large, and a search in their own tree would read its way
CREATE TABLE IF NOT EXISTS top (
    one INTEGER PRIMARY KEY CHECK (one = 1), mode INTEGER NOT NULL, digest BLOB NOT NULL,
    strangers INTEGER NOT NULL, boot TEXT NOT NULL, scan_ns INTEGER NOT NULL,
    current INTEGER NOT NULL
) STRICT;
PRAGMA user_version={_VERSION};
"""
#: A state that only work items may change is scanned at least this often.
_SCRUB_AFTER_NS = 3_600 * 1_000_000_000
#: A scan restarts if folders are removed while it reads them, at most so often.
_TRIES = 5
#: Of a folder that is not hashed yet.
_NO_DIGEST = bytes(DIGEST_BYTES)


@value(kw_only=False)
class State:
    """The state of a whole workspace."""

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
    strangers: int  #: entries with another owner than the top folder
    looked: bool = True  #: else it was taken from the index


@value(kw_only=False)
class _LastScan:
    scanned: Scanned
    scan_ns: int  #: when it began
    current: bool  #: no change was begun since


@value(frozen=False, kw_only=False)
class Preview:
    """A future state: the index with a delta applied, in memory."""

    state: State
    folders: dict[bytes, Packed | None] = field(default_factory=dict)


@value
class _Looked:
    """The result of a scan, not yet stored."""

    scanned: Scanned
    folders: Mapping[bytes, Packed]  #: all folders on the disk
    changes: Mapping[bytes, Packed | None]  #: folders that are not in the index, or differ from it
    scan_ns: int


class _Moved(Exception):
    """A name was changed during the scan."""


class Index:
    """One workspace's index. Used by one process at a time, under the workspace's lock."""

    def __init__(self, path: Path, *, fixed: bool = False) -> None:
        #: Folders that were read since the last change; a delta reads each several times.
        self._asked: dict[bytes, Packed] = {}
        if fixed:
            name = f"{path.absolute().as_uri()}?immutable=1"
            self._database = sqlite3.connect(name, uri=True, isolation_level=None)
            return
        self._database = sqlite3.connect(path, isolation_level=None)
        # Not synced: after a power cut it is at worst out of date, which a scan finds, or corrupt,
        # which `open` finds. The state itself never depends on it.
        self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            drop = "DROP TABLE IF EXISTS folders; DROP TABLE IF EXISTS top;"
            self._database.executescript(drop + _SCHEMA)

    @classmethod
    def open(cls, path: Path) -> Index:
        try:
            return cls(path)
        except sqlite3.DatabaseError:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            return cls(path)

    @classmethod
    def fixed(cls, path: Path) -> Index:
        """An index that nobody changes any more. SQLite then takes no lock and makes no file."""
        return cls(path, fixed=True)

    @classmethod
    def copied(cls, path: Path) -> Index:
        """A copy in memory; empty if the file is no index of this version."""
        copy = cls(Path(":memory:"))
        with contextlib.suppress(sqlite3.Error):
            source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            with contextlib.closing(source):
                if source.execute("PRAGMA user_version").fetchone() == (_VERSION,):
                    source.backup(copy._database)
        return copy

    def close(self) -> None:
        self._database.close()

    @property
    def state(self) -> State | None:
        row = self._database.execute("SELECT mode, digest FROM top").fetchone()
        return None if row is None else State(row[0], row[1])

    def believed(self, state_hash: str) -> Scanned | None:
        """The state without reading the disk, if it is this one.

        ``None`` if it was written before the last boot (nothing here is synced), or if the last
        scan is too old. The caller has to know whether another program can write there.
        """
        last = self._last_scan()
        if last is None or _now_ns() - last.scan_ns > _SCRUB_AFTER_NS:
            return None
        if last.scanned.state.hash != state_hash:
            return None
        return replace(last.scanned, looked=False)

    def scanned_since(self, asked_ns: int) -> Scanned | None:
        """The last scan, if it began after `asked_ns` and no change was begun since.

        Such a scan is as good as one that the caller starts now.
        """
        last = self._last_scan()
        return last.scanned if last and last.current and last.scan_ns >= asked_ns else None

    def _last_scan(self) -> _LastScan | None:
        row = self._database.execute(
            "SELECT mode, digest, strangers, boot, scan_ns, current FROM top"
        ).fetchone()
        if row is None or row[3] != this_boot():
            return None
        scanned = Scanned(state=State(row[0], row[1]), entries=0, read=0, strangers=row[2])
        return _LastScan(scanned, row[4], bool(row[5]))

    def expect_change(self) -> None:
        """Before a commit: if it never reaches `accept`, no process takes this for the state."""
        self._database.execute("UPDATE top SET current = 0")

    def entries(self, folder: bytes) -> Packed:
        """The entries of a folder; empty for one that does not exist."""
        found = self._asked.get(folder)
        if found is None:
            row = self._database.execute(
                "SELECT names, lines, lengths, stamps FROM folders WHERE path = ?", (folder,)
            ).fetchone()
            found = self._asked[folder] = Packed(*row) if row else Packed()
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
            for name, entry in self.entries(here).items():
                path = joined(here, name)
                yield path, entry
                if entry.kind is Kind.FOLDER:
                    waiting.append(path)

    def links(self, text: bytes) -> Iterator[bytes]:
        """Links whose names hold a text."""
        holding = "SELECT path FROM folders WHERE instr(names, ?) > 0"
        for (folder,) in self._database.execute(holding, (text,)).fetchall():
            for name, entry in self.entries(folder).items():
                if entry.kind is Kind.LINK and text in name:
                    yield joined(folder, name)

    def scan(self, top: Path, skip: frozenset[bytes] = frozenset()) -> Scanned:
        """Bring the index up to date with the folder `top`, reading only what may have changed.

        `skip` are names directly below the top that are no part of the state.
        """
        found = self._looked(top, skip)
        self._store(found.changes, found.scanned.state, (found.scanned.strangers, found.scan_ns))
        return found.scanned

    def look(self, top: Path, skip: frozenset[bytes]) -> tuple[State, dict[bytes, Entry]]:
        """The current state of the folder `top`, entry by entry. The index is not changed."""
        found = self._looked(top, skip)
        entries = {
            joined(folder, name): entry
            for folder, packed in found.folders.items()
            for name, entry in packed.items()
        }
        return found.scanned.state, entries

    def _looked(self, top: Path, skip: frozenset[bytes]) -> _Looked:
        anchor = os.open(top, files.FOLDER_FLAGS)
        try:
            files.require_no_mounts(anchor, skip)
            for left in reversed(range(_TRIES)):
                try:
                    return self._look(anchor, skip)
                except (FileNotFoundError, NotADirectoryError, _Moved):
                    if not left:
                        raise
        finally:
            os.close(anchor)
        raise AssertionError("unreachable")

    def _look(self, anchor: int, skip: frozenset[bytes]) -> _Looked:
        scan_ns, top, last = _now_ns(), os.fstat(anchor), self.state
        looker = Looker(top)
        known = {
            path: Packed(*rest)
            for path, *rest in self._database.execute(
                "SELECT path, names, lines, lengths, stamps FROM folders"
            )
        }
        changed: dict[bytes, Packed] = {}
        order: list[bytes] = []
        waiting = [b""]
        entries = read = strangers = 0
        while waiting:
            path = waiting.pop()
            order.append(path)
            folder = files.open_folder(path, anchor)
            try:
                seen_ns = time.time_ns()
                stamped = looker.look(folder, skip if not path else frozenset())
                if stamped.alien is not None:
                    raise files.another_mount(joined(path, stamped.alien))
                entries += len(stamped.names)
                strangers += stamped.strangers
                before = known.get(path)
                if before is None or not _same(before, stamped):
                    changed[path], count = _looked_at(stamped, before, folder, seen_ns)
                    read += count
            finally:
                os.close(folder)
            waiting.extend(joined(path, name) for name in stamped.folders)
        digest = _carried_up(order, known, changed) or (last.digest if last else b"")
        state = State(top.st_mode & 0o777, digest)
        return _Looked(
            scanned=Scanned(state=state, entries=entries, read=read, strangers=strangers),
            folders={path: changed.get(path) or known[path] for path in order},
            changes={**dict.fromkeys(known.keys() - set(order)), **changed},
            scan_ns=scan_ns,
        )

    def preview(self, delta: Delta) -> Preview:
        """The state that `delta` leads to. The cost grows with the delta."""
        current = self.state
        if current is None:
            raise ValueError("the index was never filled")
        mode = current.mode
        changes: dict[bytes, dict[bytes, Entry | None]] = {}
        gone = set()
        for change in delta:
            was = change.before is not None and change.before.kind is Kind.FOLDER
            is_ = change.after is not None and change.after.kind is Kind.FOLDER
            if not change.path:
                mode = change.after.mode if change.after else mode
                continue
            changes.setdefault(parent_of(change.path), {})[name_of(change.path)] = change.after
            if is_:
                changes.setdefault(change.path, {})
            elif was:
                gone.add(change.path)
        folders: dict[bytes, Packed | None] = {}
        for path in _with_parents(changes):
            if path in gone:
                continue
            here = folders[path] = self.entries(path).patched(changes.get(path, {}))
            if path:
                name, above = name_of(path), changes.setdefault(parent_of(path), {})
                entry = above[name] if name in above else self.entries(parent_of(path)).get(name)
                if entry is not None and entry.kind is Kind.FOLDER:
                    above[name] = entry._replace(digest=here.digest)
        top = folders.get(b"")
        folders.update(dict.fromkeys(gone))
        return Preview(State(mode, top.digest if top else current.digest), folders)

    def accept(self, preview: Preview) -> None:
        """The previewed state is now the state. The next scan finds the stamps of its files."""
        self._store(preview.folders, preview.state)

    def _store(
        self,
        folders: Mapping[bytes, Packed | None],
        state: State,
        scan: tuple[int, int] | None = None,  #: strangers, and when it began
    ) -> None:
        self._asked.clear()
        with _transaction(self._database) as cursor:
            for path, packed in folders.items():
                if packed is None:
                    cursor.execute("DELETE FROM folders WHERE path = ?", (path,))
                else:
                    cursor.execute(
                        "INSERT OR REPLACE INTO folders (path, names, lines, lengths, stamps)"
                        " VALUES (?, ?, ?, ?, ?)",
                        (path, packed.names, packed.lines, packed.lengths, packed.stamps),
                    )
            if scan is None:
                cursor.execute("UPDATE top SET mode = ?, digest = ?", (state.mode, state.digest))
                return
            cursor.execute(
                "INSERT OR REPLACE INTO top"
                " (one, mode, digest, strangers, boot, scan_ns, current)"
                " VALUES (1, ?, ?, ?, ?, ?, 1)",
                (state.mode, state.digest, scan[0], this_boot(), scan[1]),
            )


def _now_ns() -> int:
    """The same clock for all processes since boot, suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class _transaction:  # noqa: N801 -- reads as a statement
    def __init__(self, database: sqlite3.Connection) -> None:
        self._cursor = database.cursor()

    def __enter__(self) -> sqlite3.Cursor:
        return self._cursor.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_rest: object) -> None:
        self._cursor.execute("COMMIT" if kind is None else "ROLLBACK")


def _same(before: Packed, stamped: Stamped) -> bool:
    return before.stamps == stamped.stamps and before.names == packed_names(stamped.names)


def _looked_at(
    stamped: Stamped, before: Packed | None, folder: int, seen_ns: int
) -> tuple[Packed, int]:
    """The entries of one folder, and how many files were read."""
    known = {name: (line, stamp) for name, line, stamp in before.rows()} if before else {}
    rows, read = [], 0
    for number, name in enumerate(stamped.names):
        stamp = stamped.stamps[number * STAMP_BYTES : (number + 1) * STAMP_BYTES]
        line, known_stamp = known.get(name, (b"", UNKNOWN))
        if stamp == known_stamp:
            rows.append((name, line, stamp))
            continue
        look = files.look(name, folder)
        if look is None or files.kind_of(look.st_mode) is not stamped.kind(number):
            raise _Moved(name)
        # By its mode: a work item's own process could read it, a later undo could not.
        if files.is_closed(look.st_mode):
            raise files.closed(name)
        if files.kind_of(look.st_mode) is Kind.FOLDER:
            digest = _NO_DIGEST
            if line and entry_in(line, name).kind is Kind.FOLDER:
                digest = entry_in(line, name).digest
        else:
            digest = files.read_digest(name, folder, look)
            read += 1
            stamp = stamp if proves(stamp, seen_ns) else UNKNOWN
        rows.append((name, line_of(name, files.entry_of(look, digest)), stamp))
    return Packed.of(rows), read


def _carried_up(
    order: Iterable[bytes], known: Mapping[bytes, Packed], changed: dict[bytes, Packed]
) -> bytes | None:
    """Put digests of changed folders into their parents, deepest first. Returns the digest of the
    top folder if it is new.

    `order` has every folder after its parent.
    """
    digests: dict[bytes, dict[bytes, bytes]] = defaultdict(dict)
    for path in reversed(list(order)):
        new = digests.get(path)
        if new is None and path not in changed:
            continue
        here = changed.get(path) or known[path]
        moved: dict[bytes, Entry | None] = {}
        for name, digest in (new or {}).items():
            entry = here.get(name)
            if entry is not None and entry.digest != digest:
                moved[name] = entry._replace(digest=digest)
        if moved:
            here = changed[path] = here.patched(moved)
        if path in changed:
            if not path:
                return here.digest
            digests[parent_of(path)][name_of(path)] = here.digest
    return None


def _with_parents(paths: Iterable[bytes]) -> list[bytes]:
    """These folders and all their parents, deepest first."""
    found = {b""}
    for path in paths:
        here = path
        while here not in found:
            found.add(here)
            here = parent_of(here)
    return sorted(found, key=lambda one: one.count(b"/") + bool(one), reverse=True)


def difference(before: Iterable[tuple[bytes, Entry]], after: Mapping[bytes, Entry]) -> Delta:
    """The changes from one full listing to another: for engines without an upper layer."""
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
        return before.mode == after.mode  # its entries are changes of their own
    return before == after
