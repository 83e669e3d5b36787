"""The audit log: a Merkle tree that only grows, and signed checkpoints over all of it.

Each record keeps, beside its bytes, the hashes of the subtrees it completes; so adding, the root
and every proof cost a few reads, however long the log is. There are two ways to add:

- a `page` is a transaction of the database, with its checkpoint;
- an `entry` is a frame of the journal (`store.journal`): one write, one sync. A receipt in it is
  signed already. The audit records are bound by the frame's MAC until they are filed: then the tree
  grows by them, under a signed checkpoint. Every reader files first.

Nothing is ever added to a log whose end is not the one that was signed last: what was changed
behind our back is reported, not signed over.

This makes changes evident, to whoever has the key's public half. It cannot show that the newest
records *and* their checkpoints were cut off together: only a checkpoint kept elsewhere can.
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
from actum.evidence.audit import adopted
from actum.evidence.encoding import encoded
from actum.evidence.laid import signed
from actum.evidence.portion import Portion
from actum.store import frames, note
from actum.store.database import Database
from actum.store.filing import End, Ready, Unfit, file_away, ready, require_next
from actum.store.frames import Frame, Part, unpacked
from actum.store.journal import LARGEST_FRAME, Journal, JournalChanged, Mac, Turn
from actum.store.keys import Keyring, Signer, private_keys, switch_to_next
from actum.store.merkle import HASH_BYTES, Edge, ReadNode, leaf_hash, read_edge

#: Number and note of the checkpoint that a migration leaves; those that were signed count from 1.
_UNSIGNED = (0, "")

_BESIDE = 16_384  #: more bytes than a frame's audit records have


class Page:
    """One transaction's records. They and their checkpoint are committed together."""

    def __init__(self, cursor: sqlite3.Cursor, end: End, signer: Signer) -> None:
        self.cursor = cursor
        self.signer = signer  #: whoever signs anything in this transaction
        self._before = end
        self._edge = end.edge
        self._heir: Signer | None = None

    def append(self, document: dict[str, Json]) -> int:
        """Add one record and return its number, counted from 1 without gaps."""
        record = encoded(document)
        self._edge, nodes = self._edge.grown(leaf_hash(record))
        seq = self._edge.size
        self.cursor.execute(
            "INSERT INTO audit (seq, record, nodes) VALUES (?, ?, ?)", (seq, record, nodes)
        )
        return seq

    def hand_over(self, heir: Signer) -> None:
        """Both keys sign this page's checkpoint; the next page is the heir's."""
        self._heir = heir

    def sign(self) -> tuple[End, Signer]:
        """Write the checkpoint; returns where the log ends now and who signs the next page."""
        signers = (self.signer, self._heir) if self._heir else (self.signer,)
        end = End(self._before.origin, self._edge, self._before.checkpoints + 1)
        _insert_checkpoint(self.cursor, end, signers)
        return end, signers[-1]


class Entry:
    """One frame's records, and what they are of. Durable when its `with` block has ended.

    Only one who holds it can be writing; so what it finds out inside stays true until then.
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
                ticket = log.lay_down(self._first, self._last, self._parts, self._outcomes)
        except BaseException:
            log.undone()  # its bytes may be there and not be counted: they are read the next time
            raise
        finally:
            log.end_entry()
        if kind is None:
            log.sync(ticket)

    @property
    def signer(self) -> Signer:
        """Whoever signs anything in this frame."""
        return self._log.signer

    def append(self, document: dict[str, Json]) -> int:
        """Add one record and return its number, counted from 1 without gaps."""
        return self.append_encoded(encoded(document))

    def append_encoded(self, record: bytes) -> int:
        self._last += 1
        self._parts.append((frames.RECORD, (record,)))
        return self._last

    def add(self, part: Part) -> None:
        """What else is to be filed with the records."""
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
        """What is on record of an id: ``None`` nothing, ``(None,)`` it is open, or its outcome."""
        return self._log.outcome_of(execution_id)


class Log:
    """One process's hold on the log. Its lock is the `Database`'s."""

    def __init__(self, database: Database, signer: Signer) -> None:
        self._database = database
        self._journal = database.journal
        self.signer = signer
        self._end: End | None = None  #: of what is filed
        self._last = 0  #: the newest record, those in frames that were read included
        self._known: Turn | None = None  #: the journal's, to which both belong: the very same
        self._laid: dict[str, str | None] = {}  #: executions in the journal: outcome, if ended
        self._mac: tuple[bytes, Signer, Mac] | None = None
        database.files_by(self)

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A transaction that adds at least one record, and the checkpoint over all of them."""
        with self._database.transaction() as cursor:
            end = self._stored(cursor)
            page = Page(cursor, end, self.signer)
            if not end.signed:
                cursor.execute("DELETE FROM checkpoints WHERE note = ''")
                page.append(adopted(end.edge.size, end.edge.root, datetime.now(UTC)))
            yield page
            # Forgotten again by `undone` if the commit fails.
            end, self.signer = page.sign()
            self._ends_at(end)

    @contextmanager
    def last_page(self) -> Iterator[Page]:
        """A page that another key comes after.

        No frame may be left that only the key before it could read, not by a power cut either: so
        the journal is empty, on the disk, before there is anything of that key's heir.
        """
        self._database.begin_turn()
        try:
            self._database.file()
            self._journal.settle()
            with self.page() as page:
                yield page
        finally:
            self._database.end_turn()

    def entry(self) -> Entry:
        """A frame of the journal that adds at least one record."""
        return Entry(self)

    def has(self, execution_id: str) -> bool:
        """Whether anything is on record of an id. Reads the journal as it is: nothing is filed."""
        self.begin_entry()
        try:
            return self.outcome_of(execution_id) is not None
        finally:
            self.end_entry()

    def laid(self) -> int:
        """How many executions lie in the journal, as far as this process knows."""
        return len(self._laid)

    @property
    def almost_full(self) -> bool:
        """Whether there will soon be no place in the journal, whatever it is that lies there."""
        return self._journal.almost_full

    # What an `Entry` is made of

    def begin_entry(self) -> int:
        """The number of the newest record."""
        self._database.begin_turn()
        try:
            journal = self._journal
            if self._end is None or self._known is not journal.turn or not journal.nothing_new:
                self._catch_up()
        except BaseException:
            self.undone()  # half of what was read is not to be believed the next time
            self._database.end_turn()
            raise
        return self._last

    def end_entry(self) -> None:
        self._database.end_turn()

    def outcome_of(self, execution_id: str) -> tuple[str | None] | None:
        if execution_id in self._laid:
            return (self._laid[execution_id],)
        found: tuple[str | None] | None = self._database.peek(
            "SELECT outcome FROM executions WHERE execution_id = ?", (execution_id,)
        )
        return found

    def lay_down(
        self,
        first: int,
        last: int,
        parts: list[Part],
        outcomes: list[tuple[str, str | None]],
    ) -> int:
        payload = frames.packed(first, parts)
        if not self._journal.fits(len(payload)):
            self._database.file()
            if not self._journal.fits(len(payload)):
                raise EvidenceUnavailable(
                    f"A record of {len(payload)} bytes has no place in {self._journal.path}.",
                    remedy="Free space on that file system.",
                )
        ticket = self._journal.append(payload, self._macs())
        self._last = last
        self._laid.update(outcomes)
        return ticket

    def takes(self, payload_bytes: int) -> bool:
        """Whether so much is for a frame, and not for a transaction."""
        # Where the disk is almost full a journal stays small.
        return payload_bytes <= LARGEST_FRAME and self._journal.holds(payload_bytes + _BESIDE)

    def sync(self, ticket: int) -> None:
        self._journal.sync(ticket)

    def settle(self) -> None:
        self._journal.settle()

    def adopt(self) -> None:
        """Sign what a migration from before checkpoints has left unsigned, on record."""
        with self._database.as_it_is():  # there can be no journal to such a home
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

    # What the `Database` asks for: see `store.database.Filer`

    def file(self, cursor: sqlite3.Cursor) -> bool:
        if self._known is not self._journal.turn:
            self._end = None
        if not (self._journal.lies() or self._journal.unfinished):
            return False
        known = self._end is not None
        end = self._load(cursor)
        self._journal.rewind(looked_through=known)
        lying = [
            ready(signed(each, self.signer))
            for each in self._read(end.edge.size)
            if each.last > end.edge.size
        ]
        self._ends_at(self._put_away(cursor, end, lying, self.signer))
        return True

    def committed(self) -> None:
        self._known = self._journal.turn if self._end is not None else None

    def undone(self) -> None:
        self._end = self._known = None

    # What the `Clerk` files, beside those who write

    def portion(self) -> Portion:
        """All that lies in the journal, from its first frame on."""
        self.begin_entry()
        try:
            return Portion(self._journal, self._macs(), self.signer)
        finally:
            self.end_entry()

    def file_beside(self, portion: Portion) -> None:
        """File what is ready of it, with no lock but SQLite's.

        That needs no turn: a frame that is filed and still lies there says what it said before, to
        everyone who remembers it and to everyone who reads it, as after a crash. The turn is for
        emptying.
        """
        with self._database.beside() as cursor:
            end, found = self._ending(cursor)
            if not end.signed or (found is not None and not _signed_last(found, portion.signer)):
                raise EvidenceUnavailable(
                    "Another key signs by now.", remedy="Whoever files next uses it."
                )
            lying = [each for each in portion.ready if each.last > end.edge.size]
            filed = self._put_away(cursor, end, lying, portion.signer)
        portion.filed(filed)

    def finish(self, portion: Portion) -> None:
        """File what has come since, which are few, and begin the journal anew."""
        self.begin_entry()
        try:
            if not portion.is_current:
                return
            while portion.step():
                pass
            if not portion.is_all:
                self._database.file()  # which finds out what is wrong with the rest
                return
            if portion.ready:
                self.file_beside(portion)
            if portion.end is not None:
                self._journal.empty()
                self._ends_at(portion.end)
        except BaseException:
            self.undone()
            raise
        finally:
            self.end_entry()

    def _put_away(
        self, cursor: sqlite3.Cursor, end: End, lying: Sequence[Ready], signer: Signer
    ) -> End:
        try:
            return write_out(cursor, end, lying, signer)
        except Unfit as error:
            raise JournalChanged(self._journal.path, f"of what lies there, {error}") from error

    # Where the log ends

    def _ends_at(self, end: End) -> None:
        """So far it is filed, and nothing is known to lie behind it."""
        self._end, self._last, self._laid = end, end.edge.size, {}
        self._known = self._journal.turn

    def _catch_up(self) -> None:
        """Get to know where the log ends, with the turn held."""
        if self._end is None or self._known is not self._journal.turn:
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
                pass  # which files, and leaves an empty journal

    def _read(self, filed: int) -> Iterable[Frame]:
        """Frames not read yet; raises if one was taken away that the tables do not have."""
        return read_frames(self._journal, self._macs(), filed)

    def _follow(self, frame: Frame) -> None:
        """Somebody else has written it."""
        try:
            require_next(self._last, frame)
        except Unfit as error:
            raise JournalChanged(self._journal.path, f"of what lies there, {error}") from error
        self._last = frame.last
        self._laid.update((row["execution_id"], None) for row in frame.started)
        ended = (*frame.ended, *frame.sealed)
        self._laid.update((row["execution_id"], row["outcome"]) for row in ended)

    def _macs(self) -> Mac:
        kept = self._mac
        # By what it is made of, so it is never that of another generation or key.
        if kept is None or kept[0] != self._journal.salt or kept[1] is not self.signer:
            salt = self._journal.salt
            kept = self._mac = (salt, self.signer, self.signer.macs(salt))
        return kept[2]

    def _stored(self, cursor: sqlite3.Cursor) -> End:
        """The end of the log in a transaction, everything being filed."""
        end = self._end
        if end is None or self._known is not self._journal.turn or end.edge.size != _size(cursor):
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
        """The last signature says whose turn it is. If it is not ours, a rotation went by."""
        home = self._database.path.parent
        if _signed_last(found, self.signer):
            return
        keyring = Keyring.open(home)
        if not _signed_last(found, keyring.signer):
            # A rotation was committed, and stopped before the key was switched: carry it through.
            heir = next((key for key in private_keys(home) if _signed_last(found, key)), None)
            if heir is None:
                note.verify(found, keyring.trusted.values())
                raise self._changed("it was signed last by a key that is not in use here")
            switch_to_next(home, heir.keyid)
            keyring = Keyring.open(home)
        self.signer = keyring.signer

    def _changed(self, why: str) -> EvidenceUnavailable:
        return _changed(self._database.path, why)


def stored_end(cursor: sqlite3.Cursor, signer: Signer, path: Path) -> tuple[End, note.Note | None]:
    """Where the tables say that the log ends, and what was signed there, by any key."""
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


def read_frames(journal: Journal, mac: Mac, filed: int) -> Iterable[Frame]:
    """Frames not read yet; raises if one was taken away that the tables do not have."""
    read, strays = journal.read(mac)
    for stray in strays:
        if unpacked(stray.payload).last > filed and stray.durable > journal.frames:
            missing = f"frame {journal.frames} is damaged, and frame {stray.number} is not"
            raise JournalChanged(journal.path, missing)
    return map(unpacked, read)


def write_out(cursor: sqlite3.Cursor, end: End, lying: Sequence[Ready], signer: Signer) -> End:
    """Put frames into their tables, under a signed checkpoint; raises `Unfit`."""
    filed = file_away(cursor, end, lying)
    # Frames of older versions bring checkpoints of their own; the last may be over all of it.
    if lying and not filed.signed:
        filed = End(filed.origin, filed.edge, filed.checkpoints + 1)
        _insert_checkpoint(cursor, filed, (signer,))
    return filed


def _changed(path: Path, why: str) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The audit log in {path} was changed: {why}. Nothing is added to it.",
        remedy="`actum verify --all` names what differs; restore the home from a backup.",
    )


def node_reader(source: sqlite3.Cursor | Database) -> ReadNode:
    """Nodes of the stored tree: a subtree is kept beside the last of its leaves."""
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
    cursor.execute(
        "INSERT INTO checkpoints (size, number, note) VALUES (?, ?, ?)",
        (end.edge.size, end.checkpoints, note.sign(_checkpoint(end), signers)),
    )


def _only_one(cursor: sqlite3.Cursor) -> bool:
    # What a migration leaves unsigned has never been signed: nothing else may claim to be that.
    return bool(cursor.execute("SELECT count(*) = 1 FROM checkpoints").fetchone()[0])


def _checkpoint(end: End) -> note.Checkpoint:
    return note.Checkpoint(origin=end.origin, size=end.edge.size, root=end.edge.root)


def _new_origin(signer: Signer) -> str:
    # A log keeps its name through rotations: that of its first key.
    return f"actum/{signer.keyid[:32]}"


def _signed_last(found: note.Note, signer: Signer) -> bool:
    claimed, signature = found.signatures[-1]
    checkpoint = found.checkpoint
    return claimed == note.key_id(checkpoint.origin, signer.public) and signer.public.verifies(
        checkpoint.text.encode(), signature
    )
