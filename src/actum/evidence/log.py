"""The audit log: a Merkle tree that only grows, and a signed checkpoint at every commit.

Each record keeps, beside its bytes, the hashes of the subtrees it completes; so adding, the root
and every proof cost a few reads, however long the log is. A checkpoint is part of the same
transaction as the records it covers. Nothing is ever added to a log whose end is not the one that
was signed last: what was changed behind our back is reported, not signed over.

This makes changes evident, to whoever has the key's public half. It cannot show that the newest
records *and* their checkpoints were cut off together: only a checkpoint kept elsewhere can.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.audit import adopted
from actum.evidence.encoding import encoded
from actum.store import note
from actum.store.database import Database
from actum.store.keys import Keyring, Signer, private_keys, switch_to_next
from actum.store.merkle import HASH_BYTES, Edge, ReadNode, leaf_hash, read_edge
from actum.value import value


@value(kw_only=False)
class Head:
    """Where a log ends, and what it is called."""

    origin: str
    edge: Edge
    checkpoints: int = 0  #: how many there are
    signed: bool = True


class Page:
    """One transaction's records. They and their checkpoint are committed together."""

    def __init__(self, cursor: sqlite3.Cursor, head: Head, signer: Signer) -> None:
        self.cursor = cursor
        self.signer = signer  #: whoever signs anything in this transaction
        self._before = head
        self._edge = head.edge
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

    def sign(self) -> tuple[Head, Signer]:
        """Write the checkpoint; returns where the log ends now and who signs the next page."""
        head = Head(self._before.origin, self._edge, self._before.checkpoints + 1)
        signers = (self.signer, self._heir) if self._heir else (self.signer,)
        self.cursor.execute(
            "INSERT INTO checkpoints (size, number, note) VALUES (?, ?, ?)",
            (self._edge.size, head.checkpoints, note.sign(_checkpoint(head), signers)),
        )
        return head, signers[-1]


class Log:
    def __init__(self, database: Database, signer: Signer) -> None:
        self._database = database
        self._signer = signer
        self._head: Head | None = None
        self._lock = threading.RLock()

    @contextmanager
    def page(self, *, filed: bool = True) -> Iterator[Page]:
        """A transaction that adds at least one record, and the checkpoint over all of them.

        `filed` is as for `Database.transaction`.
        """
        with self._lock:
            with self._database.transaction(filed=filed) as cursor:
                page = self._open(cursor)
                yield page
                head, signer = page.sign()
            # Only what is committed is remembered.
            self._head, self._signer = head, signer

    def adopt(self) -> None:
        """Sign what a migration from before checkpoints has left unsigned, on record."""
        if self._database.row("SELECT note FROM checkpoints ORDER BY size LIMIT 1") == ("",):
            with self.page():
                pass

    def checkpoint(self) -> str | None:
        """The newest signed checkpoint; ``None`` before the first record."""
        row = self._database.row("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
        return str(row[0]) if row else None

    def _open(self, cursor: sqlite3.Cursor) -> Page:
        size = cursor.execute("SELECT max(seq) FROM audit").fetchone()[0] or 0
        if self._head is None or self._head.edge.size != size:
            self._head = self._load(cursor, size)
        page = Page(cursor, self._head, self._signer)
        if not self._head.signed:
            cursor.execute("DELETE FROM checkpoints WHERE note = ''")
            page.append(adopted(size, self._head.edge.root, datetime.now(UTC)))
        return page

    def _load(self, cursor: sqlite3.Cursor, size: int) -> Head:
        row = cursor.execute(
            "SELECT size, number, note FROM checkpoints ORDER BY size DESC LIMIT 1"
        ).fetchone()
        if row is None:
            if size:
                raise self._changed("its checkpoints are gone")
            return Head(_new_origin(self._signer), Edge())
        signed_size, number, text = row
        try:
            edge = read_edge(size, node_reader(cursor))
            if text == "" and signed_size == size and _only_one(cursor):
                return Head(_new_origin(self._signer), edge, signed=False)
            found = note.parse(text)
            if found.checkpoint != _checkpoint(Head(found.checkpoint.origin, edge)):
                raise self._changed(f"its {size} records are not those that were signed last")
            self._require_signature(found)
        except VerificationFailed as error:
            raise self._changed(error.message.rstrip(".")) from error
        return Head(found.checkpoint.origin, edge, number)

    def _require_signature(self, found: note.Note) -> None:
        """The last signature says whose turn it is. If it is not ours, a rotation went by."""
        home = self._database.path.parent
        if _signed_last(found, self._signer):
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
        self._signer = keyring.signer

    def _changed(self, why: str) -> EvidenceUnavailable:
        return EvidenceUnavailable(
            f"The audit log in {self._database.path} was changed: {why}. Nothing is added to it.",
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


def _only_one(cursor: sqlite3.Cursor) -> bool:
    # What a migration leaves unsigned has never been signed: nothing else may claim to be that.
    return bool(cursor.execute("SELECT count(*) = 1 FROM checkpoints").fetchone()[0])


def _checkpoint(head: Head) -> note.Checkpoint:
    return note.Checkpoint(origin=head.origin, size=head.edge.size, root=head.edge.root)


def _new_origin(signer: Signer) -> str:
    # A log keeps its name through rotations: that of its first key.
    return f"actum/{signer.keyid[:32]}"


def _signed_last(found: note.Note, signer: Signer) -> bool:
    claimed, signature = found.signatures[-1]
    checkpoint = found.checkpoint
    return claimed == note.key_id(checkpoint.origin, signer.public) and signer.public.verifies(
        checkpoint.text.encode(), signature
    )
