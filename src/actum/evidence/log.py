"""The audit log: a Merkle tree that only grows, and signed checkpoints over all of it.

Each record stores, beside its bytes, the hashes of the subtrees it completes. So appending, the
root and every proof cost a few reads, however long the log is. There are two ways to append:

- a `page` is a transaction of the database, with its checkpoint;
- an `entry` is a frame of the journal (`store.journal`): one write, one sync. A receipt in it is
  signed already. The frame's MAC binds the audit records until they are written out: then the tree
  grows by them, under a signed checkpoint. Every reader writes out first.

Nothing is ever appended to a log whose end is not the one that was signed last: a change made by
another program is reported, not signed over.

This makes changes evident to holders of the public key. It cannot show that the newest records
*and* their checkpoints were cut off together: only a checkpoint stored elsewhere can.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.batch import Batch
from actum.evidence.journal_entry import signed
from actum.evidence.records.audit import adopted
from actum.evidence.records.encoding import encoded
from actum.store import frames, note
from actum.store.database import Database
from actum.store.frames import Frame, Part, unpacked
from actum.store.journal import LARGEST_FRAME, Journal, JournalChanged, Mac, Revision
from actum.store.keys import Keyring, Signer, private_keys, switch_to_next
from actum.store.merkle import HASH_BYTES, Edge, ReadNode, leaf_hash, read_edge
from actum.store.write_out import End, Ready, Unfit, ready, require_next, write_frames
from actum.store.writer import insert_audit, insert_checkpoints, remove_unsigned_checkpoint

#: Number and note of the checkpoint that a migration leaves; those that were signed count from 1.
_UNSIGNED = (0, "")

_BESIDE = 16_384  #: upper bound of the bytes of a frame's audit records


class Page:
    """One transaction's records. They and their checkpoint are committed together."""

    def __init__(self, cursor: sqlite3.Cursor, end: End, signer: Signer) -> None:
        self.cursor = cursor
        self.signer = signer  #: signs everything in this transaction
        self._before = end
        self._edge = end.edge
        self._successor: Signer | None = None

    def append(self, document: dict[str, Json]) -> int:
        """Add one record and return its number, counted from 1 without gaps."""
        record = encoded(document)
        self._edge, nodes = self._edge.grown(leaf_hash(record))
        seq = self._edge.size
        insert_audit(self.cursor, [(seq, record, nodes)])
        return seq

    def proven_from(self, first: int) -> Iterator[bytes]:
        """The records from number `first` to the end.

        Raises `VerificationFailed` unless they are those of the signed tree, none changed and none
        missing. That is known only once the last one was read: read all, then use them.
        """
        if not 0 < first <= self._edge.size:
            raise VerificationFailed(f"The log has no record {first}.")
        edge = read_edge(first - 1, node_reader(self.cursor))
        rows = self.cursor.connection.cursor().execute(
            "SELECT record FROM audit WHERE seq >= ? ORDER BY seq", (first,)
        )
        for (record,) in rows:
            edge, _ = edge.grown(leaf_hash(record))
            yield record
        if edge != self._edge:
            raise VerificationFailed(
                f"The records from number {first} on are not those that were signed."
            )

    def hand_over(self, successor: Signer) -> None:
        """Both keys sign this page's checkpoint; the next page is the successor's."""
        self._successor = successor

    def sign(self) -> tuple[End, Signer]:
        """Write the checkpoint; returns the new end of the log and the signer of the next page."""
        signers = (self.signer, self._successor) if self._successor else (self.signer,)
        end = End(self._before.origin, self._edge, self._before.checkpoints + 1)
        _insert_checkpoint(self.cursor, end, signers)
        return end, signers[-1]


class Entry:
    """One frame's records and rows. Durable when its `with` block has ended.

    It holds the write lock, so what it reads inside the block stays true until the block ends.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._parts: list[Part] = []
        self._outcomes: list[tuple[str, str | None]] = []
        self._first: int  #: number of its first record
        self._last: int  #: and of the newest

    def __enter__(self) -> Self:
        self._last = self._log.begin_entry()
        self._first = self._last + 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        log = self._log
        try:
            if kind is None:
                ticket = log.append_frame(self._first, self._last, self._parts, self._outcomes)
        except BaseException:
            log.undone()  # its bytes may be in the file uncounted: the next entry reads them
            raise
        finally:
            log.end_entry()
        if kind is None:
            log.sync(ticket)

    @property
    def signer(self) -> Signer:
        """Signs everything in this frame."""
        return self._log.signer

    def append(self, document: dict[str, Json]) -> int:
        """Add one record and return its number, counted from 1 without gaps."""
        return self.append_encoded(encoded(document))

    def append_encoded(self, record: bytes) -> int:
        self._last += 1
        self._parts.append((frames.RECORD, (record,)))
        return self._last

    def add(self, part: Part) -> None:
        """Add rows that are written out with the records."""
        self._parts.append(part)

    def start(self, execution_id: str, part: Part) -> None:
        """Make an execution PENDING."""
        self._parts.append(part)
        self._outcomes.append((execution_id, None))

    def end(self, execution_id: str, outcome: str, part: Part) -> None:
        """Make it FINAL."""
        self._parts.append(part)
        self._outcomes.append((execution_id, outcome))

    def outcome_of(self, execution_id: str) -> tuple[str | None] | None:
        """The state of an id: ``None`` unknown, ``(None,)`` open, or its outcome."""
        return self._log.outcome_of(execution_id)


class Log:
    """One process's handle of the log. Its lock is the `Database`'s."""

    def __init__(self, database: Database, signer: Signer) -> None:
        self._database = database
        self._journal = database.journal
        self.signer = signer
        self._end: End | None = None  #: of the records in the tables
        self._last = 0  #: the newest record, including those in frames that were read
        #: The journal's, when both were read; compared by identity.
        self._revision: Revision | None = None
        #: Executions in the journal, with the outcome if ended.
        self._in_journal: dict[str, str | None] = {}
        self._mac: tuple[bytes, Signer, Mac] | None = None
        database.reads_journal_with(self)

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A transaction that adds at least one record, and the checkpoint over all of them."""
        with self._database.transaction() as cursor:
            end = self._stored(cursor)
            page = Page(cursor, end, self.signer)
            if not end.signed:
                remove_unsigned_checkpoint(cursor)
                page.append(adopted(end.edge.size, end.edge.root, datetime.now(UTC)))
            yield page
            # `undone` resets it if the commit fails.
            end, self.signer = page.sign()
            self._ends_at(end)

    @contextmanager
    def last_page(self) -> Iterator[Page]:
        """The last page of a key, before a rotation.

        No frame may remain that only the retired key can read, not even after a power cut. So the
        journal is empty, on the disk, before the successor signs anything.
        """
        self._database.acquire_write_lock()
        try:
            self._database.write_out()
            self._journal.settle()
            with self.page() as page:
                yield page
        finally:
            self._database.release_write_lock()

    def entry(self) -> Entry:
        """A frame of the journal that adds at least one record."""
        return Entry(self)

    def has(self, execution_id: str) -> bool:
        """Whether an id is known. Reads the journal without a write-out."""
        self.begin_entry()
        try:
            return self.outcome_of(execution_id) is not None
        finally:
            self.end_entry()

    def in_journal(self) -> int:
        """How many executions are in the journal, as far as this process knows."""
        return len(self._in_journal)

    @property
    def almost_full(self) -> bool:
        """Whether the journal will soon be full, of any kind of entry."""
        return self._journal.almost_full

    # Parts of an `Entry`

    def begin_entry(self) -> int:
        """Take the write lock and return the number of the newest record."""
        self._database.acquire_write_lock()
        try:
            journal = self._journal
            current = self._end is not None and self._revision is journal.revision
            if not (current and journal.nothing_new):
                self._catch_up()
        except BaseException:
            self.undone()  # drop what was half read
            self._database.release_write_lock()
            raise
        return self._last

    def end_entry(self) -> None:
        self._database.release_write_lock()

    def outcome_of(self, execution_id: str) -> tuple[str | None] | None:
        if execution_id in self._in_journal:
            return (self._in_journal[execution_id],)
        found: tuple[str | None] | None = self._database.peek(
            "SELECT outcome FROM executions WHERE execution_id = ?", (execution_id,)
        )
        return found

    def append_frame(
        self,
        first: int,
        last: int,
        parts: list[Part],
        outcomes: list[tuple[str, str | None]],
    ) -> int:
        payload = frames.packed(first, parts)
        if not self._journal.fits(len(payload)):
            self._database.write_out()
            if not self._journal.fits(len(payload)):
                raise EvidenceUnavailable(
                    f"A record of {len(payload)} bytes does not fit in {self._journal.path}.",
                    remedy="Free space on that file system.",
                )
        ticket = self._journal.append(payload, self._macs())
        self._last = last
        self._in_journal.update(outcomes)
        return ticket

    def takes(self, payload_bytes: int) -> bool:
        """Whether an entry of this size goes into a frame; else it needs a transaction."""
        # On a disk that is almost full the journal stays small.
        return payload_bytes <= LARGEST_FRAME and self._journal.holds(payload_bytes + _BESIDE)

    def sync(self, ticket: int) -> None:
        self._journal.sync(ticket)

    def settle(self) -> None:
        self._journal.settle()

    def adopt(self) -> None:
        """Sign a log from before checkpoints, which a migration left unsigned, on record."""
        with self._database.tables_only():  # such a home has no journal
            oldest = self._database.row(
                "SELECT number, note FROM checkpoints ORDER BY size LIMIT 1"
            )
        if oldest == _UNSIGNED:
            with self.page():
                pass

    def checkpoint(self) -> str | None:
        """The newest signed checkpoint; ``None`` before the first record."""
        row = self._database.row("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
        return str(row[0]) if row else None

    @property
    def origin(self) -> str:
        """The name of this log, which stays through rotations of its key."""
        newest = self.checkpoint()
        if newest is None:
            return _new_origin(self.signer)
        return note.parse(newest).checkpoint.origin

    # `store.database.JournalReader`

    def write_out(self, cursor: sqlite3.Cursor) -> bool:
        if self._revision is not self._journal.revision:
            self._end = None
        if not (self._journal.has_frames() or self._journal.unfinished):
            return False
        known = self._end is not None
        end = self._load(cursor)
        self._journal.rewind(scanned=known)
        frames_read = [
            ready(signed(each, self.signer))
            for each in self._read(end.edge.size)
            if each.last > end.edge.size
        ]
        self._ends_at(self._write_frames(cursor, end, frames_read, self.signer))
        return True

    def committed(self) -> None:
        self._revision = self._journal.revision if self._end is not None else None

    def undone(self) -> None:
        self._end = self._revision = None

    # For the `BackgroundWriter`, concurrently with writers

    def batch(self) -> Batch:
        """The frames of the journal, from the first one on."""
        self.begin_entry()
        try:
            return Batch(self._journal, self._macs(), self.signer)
        finally:
            self.end_entry()

    def write_out_batch(self, batch: Batch) -> None:
        """Write out its prepared frames, with no lock but SQLite's.

        A frame that is written out and still in the journal does no harm, as after a crash: every
        reader skips records that the tables have. Only emptying needs the write lock.
        """
        with self._database.background_transaction() as cursor:
            end, found = self._ending(cursor)
            if not end.signed or (found is not None and not _signed_last(found, batch.signer)):
                raise EvidenceUnavailable(
                    "Another key signs by now.", remedy="The next write-out uses it."
                )
            frames_read = [each for each in batch.ready if each.last > end.edge.size]
            written = self._write_frames(cursor, end, frames_read, batch.signer)
        batch.written(written)

    def finish(self, batch: Batch) -> None:
        """Write out the few frames that came since, and empty the journal."""
        self.begin_entry()
        try:
            if not batch.is_current:
                return
            while batch.step():
                pass
            if not batch.is_all:
                self._database.write_out()  # which reports what is wrong with the rest
                return
            if batch.ready:
                self.write_out_batch(batch)
            if batch.end is not None:
                self._journal.empty()
                self._ends_at(batch.end)
        except BaseException:
            self.undone()
            raise
        finally:
            self.end_entry()

    def _write_frames(
        self, cursor: sqlite3.Cursor, end: End, frames_read: Sequence[Ready], signer: Signer
    ) -> End:
        try:
            return write_out(cursor, end, frames_read, signer)
        except Unfit as error:
            raise JournalChanged(self._journal.path, f"of its frames, {error}") from error

    # Where the log ends

    def _ends_at(self, end: End) -> None:
        """The tables end here, and no frame behind it has been read."""
        self._end, self._last, self._in_journal = end, end.edge.size, {}
        self._revision = self._journal.revision

    def _catch_up(self) -> None:
        """Find the end of the log, with the write lock held."""
        if self._end is None or self._revision is not self._journal.revision:
            with self._database.cursor() as cursor:
                end = self._load(cursor)
            self._ends_at(end)
            self._journal.rewind()
            if not end.signed:
                self.adopt()
        for frame in self._read(self._last):
            if frame.last > self._last:
                self._follow(frame)
        if self._journal.unfinished:
            with self._database.transaction():
                pass  # writes out and empties the journal

    def _read(self, written: int) -> Iterable[Frame]:
        """Frames not read yet; raises if one is missing that the tables do not have."""
        return read_frames(self._journal, self._macs(), written)

    def _follow(self, frame: Frame) -> None:
        """Take over a frame that another process has written."""
        try:
            require_next(self._last, frame)
        except Unfit as error:
            raise JournalChanged(self._journal.path, f"of its frames, {error}") from error
        self._last = frame.last
        self._in_journal.update((row["execution_id"], None) for row in frame.started)
        ended = (*frame.ended, *frame.sealed)
        self._in_journal.update((row["execution_id"], row["outcome"]) for row in ended)

    def _macs(self) -> Mac:
        kept = self._mac
        # Keyed by its inputs, so it never belongs to another generation or key.
        if kept is None or kept[0] != self._journal.salt or kept[1] is not self.signer:
            salt = self._journal.salt
            kept = self._mac = (salt, self.signer, self.signer.macs(salt))
        return kept[2]

    def _stored(self, cursor: sqlite3.Cursor) -> End:
        """The end of the log in a transaction, after the write-out."""
        end = self._end
        current = self._revision is self._journal.revision
        if end is None or not current or end.edge.size != _size(cursor):
            end = self._load(cursor)
            self._ends_at(end)
        return end

    def _load(self, cursor: sqlite3.Cursor) -> End:
        end, found = self._ending(cursor)
        if found is not None:
            try:
                self._require_signature(found)
            except VerificationFailed as error:
                raise self._changed(error.message.rstrip(".")) from error
        return end

    def _ending(self, cursor: sqlite3.Cursor) -> tuple[End, note.Note | None]:
        return stored_end(cursor, self.signer, self._database.path)

    def _require_signature(self, found: note.Note) -> None:
        """The last signature names the current key. If it is not ours, a rotation was made."""
        home = self._database.path.parent
        if _signed_last(found, self.signer):
            return
        keyring = Keyring.open(home)
        if not _signed_last(found, keyring.signer):
            # A rotation was committed, and stopped before the key was switched: complete it.
            successor = next((key for key in private_keys(home) if _signed_last(found, key)), None)
            if successor is None:
                note.verify(found, keyring.trusted.values())
                raise self._changed("it was signed last by a key that is not in use here")
            switch_to_next(home, successor.public)
            keyring = Keyring.open(home)
        self.signer = keyring.signer

    def _changed(self, why: str) -> EvidenceUnavailable:
        return _changed(self._database.path, why)


def stored_end(cursor: sqlite3.Cursor, signer: Signer, path: Path) -> tuple[End, note.Note | None]:
    """The end of the log according to the tables, and the note signed there, by any key."""
    size = _size(cursor)
    row = cursor.execute(
        "SELECT size, number, note FROM checkpoints ORDER BY size DESC LIMIT 1"
    ).fetchone()
    if row is None:
        if size:
            raise _changed(path, "its checkpoints are gone")
        return End(_new_origin(signer), Edge()), None
    signed_size, number, text = row
    try:
        edge = read_edge(size, node_reader(cursor))
        if (number, text) == _UNSIGNED and signed_size == size and _only_one(cursor):
            return End(_new_origin(signer), edge, signed=False), None
        found = note.parse(text)
        if found.checkpoint != _checkpoint(End(found.checkpoint.origin, edge)):
            raise _changed(path, f"its {size} records are not those that were signed last")
    except VerificationFailed as error:
        raise _changed(path, error.message.rstrip(".")) from error
    return End(found.checkpoint.origin, edge, number), found


def read_frames(journal: Journal, mac: Mac, written: int) -> Iterable[Frame]:
    """Frames not read yet; raises if one is missing that the tables do not have."""
    read, strays = journal.read(mac)
    for stray in strays:
        if unpacked(stray.payload).last > written and stray.durable > journal.frames:
            missing = f"frame {journal.frames} is damaged, and frame {stray.number} is not"
            raise JournalChanged(journal.path, missing)
    return map(unpacked, read)


def write_out(
    cursor: sqlite3.Cursor, end: End, frames_read: Sequence[Ready], signer: Signer
) -> End:
    """Insert the rows of frames, under a signed checkpoint; raises `Unfit`."""
    written = write_frames(cursor, end, frames_read)
    # Frames of older versions carry checkpoints; the last one may cover the whole log.
    if frames_read and not written.signed:
        written = End(written.origin, written.edge, written.checkpoints + 1)
        _insert_checkpoint(cursor, written, (signer,))
    return written


def _changed(path: Path, why: str) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The audit log in {path} was changed: {why}. Nothing is added to it.",
        remedy="`actum verify --all` names what differs; restore the home from a backup.",
    )


def node_reader(source: sqlite3.Cursor | Database) -> ReadNode:
    """Nodes of the stored tree: a subtree is stored with the last of its leaves."""
    select = "SELECT nodes FROM audit WHERE seq = ?"

    def read(level: int, index: int) -> bytes:
        last = (index + 1) << level
        if isinstance(source, Database):
            row = source.row(select, (last,))
        else:
            row = source.execute(select, (last,)).fetchone()
        found = b"" if row is None else row[0][level * HASH_BYTES : (level + 1) * HASH_BYTES]
        if len(found) != HASH_BYTES:
            raise VerificationFailed(f"The tree's part at audit record {last} is missing.")
        return bytes(found)

    return read


def _size(cursor: sqlite3.Cursor) -> int:
    return int(cursor.execute("SELECT max(seq) FROM audit").fetchone()[0] or 0)


def _insert_checkpoint(cursor: sqlite3.Cursor, end: End, signers: Sequence[Signer]) -> None:
    signed_note = note.sign(_checkpoint(end), signers)
    insert_checkpoints(cursor, [(end.edge.size, end.checkpoints, signed_note)])


def _only_one(cursor: sqlite3.Cursor) -> bool:
    # Only a log that was never signed may have an unsigned checkpoint.
    return bool(cursor.execute("SELECT count(*) = 1 FROM checkpoints").fetchone()[0])


def _checkpoint(end: End) -> note.Checkpoint:
    return note.Checkpoint(origin=end.origin, size=end.edge.size, root=end.edge.root)


def _new_origin(signer: Signer) -> str:
    # The name of its first key; it stays through rotations.
    return f"actum/{signer.keyid[:32]}"


def _signed_last(found: note.Note, signer: Signer) -> bool:
    claimed, signature = found.signatures[-1]
    checkpoint = found.checkpoint
    return claimed == note.key_id(checkpoint.origin, signer.public) and signer.public.verifies(
        checkpoint.text.encode(), signature
    )
