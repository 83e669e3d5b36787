"""Reads the whole audit log once, front to back, and names every difference from what was signed.

The tree is recomputed from the records alone. Every checkpoint is compared with it, and every
signature with the key that was current: the first checkpoint's key, and after it those that a
KEY_ROTATE record in the log itself introduces. Because there is a checkpoint per commit of the
database (one write-out may hold many executions), a change is located in the records of one
commit even if its author has recomputed all hashes.
"""

from __future__ import annotations

import base64
import bisect
import json
from collections.abc import Iterator, Mapping

from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.records.audit import Kind
from actum.evidence.rotation import rotation_problem
from actum.evidence.verify.findings import DATA_ERRORS, Finding, difference, judged
from actum.evidence.verify.log_facts import LogFacts
from actum.store import note
from actum.store.keys import PublicKey
from actum.store.merkle import HASH_BYTES, Edge, leaf_hash
from actum.store.snapshot import Snapshot
from actum.value import field, value

_UNSIGNED = "checkpoints: no checkpoint is signed over them"


@value(frozen=False, kw_only=False)
class LogReading:
    """The result of reading the log."""

    findings: list[Finding] = field(default_factory=list)
    edge: Edge = field(default_factory=Edge)
    origin: str | None = None
    #: From which record on which key signs: ``(first record, keyid)``, ascending.
    turns: list[tuple[int, str]] = field(default_factory=list)
    facts: LogFacts = field(default_factory=LogFacts)  #: what it says of rows and files
    wanted: bytes | None = None  #: root over as many records as were asked for

    def signer_at(self, seq: int) -> str | None:
        at = bisect.bisect_right(self.turns, (seq, "~")) - 1
        return self.turns[at][1] if at >= 0 else None


def read_log(
    database: Snapshot, trusted: Mapping[str, PublicKey], wanted_size: int | None = None
) -> LogReading:
    """Walk the log. `wanted_size` asks for the root over that many records as well."""
    return _Walk(database, trusted, wanted_size).read()


class _Walk:
    def __init__(
        self, database: Snapshot, trusted: Mapping[str, PublicKey], wanted_size: int | None
    ) -> None:
        self._database = database
        self._trusted = trusted
        self._wanted_size = wanted_size
        self._reading = LogReading()
        self._checkpoints = database.scan("checkpoints", ("size", "number", "note"))
        self._next = next(self._checkpoints, None)
        self._keys = tuple(trusted.values())
        self._good_to = 0  # the newest record under a checkpoint that held
        self._due, self._number = 1, 0
        self._diverged = False  # from the first missing record or wrong root on, all roots differ

    def read(self) -> LogReading:
        reading = self._reading
        self._begin()
        if self._wanted_size == 0:
            reading.wanted = reading.edge.root
        for seq, record, nodes in self._database.scan("audit", ("seq", "record", "nodes")):
            self._record(seq, record, nodes)
        while self._next is not None:
            self._checkpoint(*self._next)
        size = reading.edge.size
        none = self._number == 0
        if self._good_to < size and (none or all(each.passed for each in reading.findings)):
            self._bad(f"audit records {self._good_to + 1} to {size}", "checkpoint", _UNSIGNED)
        reading.findings.append(Finding("audit log", "read to its end", True, f"{size} records"))
        return reading

    def _begin(self) -> None:
        """The oldest checkpoint has the name of the log and its first signer."""
        if self._next is None:
            return
        try:
            first = note.parse(str(self._next[2]))
            self._reading.turns.append((1, note.verify(first, self._keys)[0]))
            self._reading.origin = first.checkpoint.origin
        except (VerificationFailed, ValueError):
            return  # reported when it is reached

    def _bad(self, subject: str, check: str, detail: str) -> None:
        self._reading.findings.append(Finding(subject, check, False, detail))

    def _record(self, seq: int, record: bytes, nodes: bytes) -> None:
        reading, subject = self._reading, f"audit record {seq}"
        if not (isinstance(record, bytes) and isinstance(nodes, bytes)):
            self._bad(subject, "shape", "audit.record or audit.nodes is not a blob")
            record, nodes = _as_blob(record), _as_blob(nodes)
        if seq != self._due:
            missing = f"record {self._due} is due here"
            self._bad(subject, "order", missing)
            self._diverged = True
        self._due = seq + 1
        leaf = leaf_hash(record)
        logged = nodes[:HASH_BYTES]
        if logged != leaf:
            self._bad(subject, "leaf hash", "its bytes are not those that were logged")
            # Continue with the logged hash: if the next root matches, nothing else was changed.
            leaf = logged if len(logged) == HASH_BYTES else leaf
        reading.edge, expected = reading.edge.grown(leaf)
        if nodes != expected and not self._diverged:
            self._bad(subject, "tree", "the hashes kept beside it are not those of the records")
        if reading.edge.size == self._wanted_size:
            reading.wanted = reading.edge.root
        self._content(seq, record, subject)
        while self._next is not None and self._next[0] <= seq:
            self._checkpoint(*self._next)

    def _content(self, seq: int, record: bytes, subject: str) -> None:
        try:
            document = json.loads(record)
        except (ValueError, RecursionError):
            self._bad(subject, "shape", "it is not JSON")
            return
        if not isinstance(document, dict):
            self._bad(subject, "shape", "it is not a JSON object")
            return
        try:
            self._reading.facts.add(seq, document)
        except DATA_ERRORS as error:
            self._bad(subject, "shape", f"it cannot be read: {error}")
            return
        kind = document.get("kind")
        if kind == Kind.KEY_ROTATE:
            self._rotation(seq, document, subject)
        elif kind == Kind.ADOPTED:
            detail = f"records 1 to {document.get('records')} were signed from {subject} on only"
            self._reading.findings.append(Finding(subject, "adopted", True, detail))

    def _rotation(self, seq: int, document: dict[str, Json], subject: str) -> None:
        problem = rotation_problem(document, self._reading.signer_at(seq), self._trusted)
        self._reading.findings.append(judged(subject, "key rotation", not problem, problem))
        if not problem:
            successor = PublicKey.from_raw(base64.b64decode(document["public_key"]))
            self._reading.turns.append((seq + 1, successor.keyid))

    def _checkpoint(self, size: int, number: int, text: str) -> None:
        reading, subject = self._reading, f"checkpoint {size}"
        self._next = next(self._checkpoints, None)
        self._number += 1
        if number != self._number:
            differs = difference("checkpoints.number", self._number, number)
            self._bad(subject, "order", differs)
            self._number = number if isinstance(number, int) else self._number
        try:
            found = note.parse(str(text))
            signed_by = note.verify(found, self._keys)
        except (VerificationFailed, ValueError) as error:
            self._bad(subject, "signature", str(error))
            return
        checkpoint = found.checkpoint
        if checkpoint.origin != reading.origin or checkpoint.size != size:
            self._bad(subject, "name", "it is of another log or another size than its place says")
        expected = reading.signer_at(size)
        if signed_by[0] != expected:
            self._bad(subject, "signer", f"signed by {signed_by[0]}; the key then was {expected}")
        if size >= self._due:
            cut = f"audit records {self._due} to {size}"
            self._bad(cut, "present", f"{subject} was signed over them; they are gone")
        elif self._diverged:
            return
        elif checkpoint.root != reading.edge.root:
            self._diverged = True
            changed = f"audit records {self._good_to + 1} to {size}"
            self._bad(changed, "root", f"they are not the records that {subject} was signed over")
        else:
            self._good_to = size


def size_of(checkpoint: str) -> int | None:
    """How many records a checkpoint claims; ``None`` for something that is none."""
    try:
        return note.parse(checkpoint).checkpoint.size
    except VerificationFailed:
        return None


def checkpoint_findings(
    text: str, reading: LogReading, trusted: Mapping[str, PublicKey], where: str
) -> Iterator[Finding]:
    """Compares a checkpoint stored elsewhere with the log as `read_log` found it."""
    subject = f"kept checkpoint {where}"
    try:
        checkpoint = note.parse(text).checkpoint
        note.verify(note.parse(text), trusted.values())
    except VerificationFailed as error:
        yield Finding(subject, "signature", False, error.message)
        return
    yield Finding(subject, "signature", True)
    yield judged(
        subject,
        "origin",
        checkpoint.origin == reading.origin,
        f"it is of the log {checkpoint.origin}; this one is {reading.origin or 'empty'}",
    )
    size = reading.edge.size
    if checkpoint.size > size:
        cut = f"the log has {size} records and had {checkpoint.size}: its end was cut off"
        yield Finding(subject, "consistency", False, cut)
        return
    changed = f"records 1 to {checkpoint.size} are not those it was signed over: edited or forked"
    same = reading.wanted == checkpoint.root
    yield judged(subject, "consistency", same, changed)


def _as_blob(held: Json) -> bytes:
    return held if isinstance(held, bytes) else str(held).encode("utf-8", "surrogatepass")
