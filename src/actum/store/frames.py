"""The content of one frame of the journal: audit records, and the rows that belong to them.

A frame is one commit: all of it is written out, or nothing. Its parts are the bytes that will be
stored, one after the other, each with its kind and length, so that nothing is encoded twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from actum.value import field, value

#: Columns of an execution at its start, and at its end: the short ones form one JSON list, the
#: documents are stored byte for byte. An empty `result_json` means none.
STARTED = (
    *("execution_id", "identity_sha256", "contract_sha256", "trace_id", "session", "tool_id"),
    *("started_at", "owner", "pending_seq"),
)
STARTED_DOCUMENTS = ("opening",)
ENDED = (
    *("execution_id", "outcome", "receipt_id", "ended_at", "evidence_id", "evidence_ref"),
    *("sha256", "final_seq"),
)
ENDED_DOCUMENTS = ("result_json", "record", "envelope", "events")
#: The end of an execution as older versions wrote it, with an unsigned receipt: the statement, and
#: the closing audit record, which has the next number and lacks the receipt's digest.
TO_SIGN = ENDED[:6]
TO_SIGN_DOCUMENTS = ("result_json", "record", "statement", "events", "audit")

_FIRST = struct.Struct("<Q")
_PART = struct.Struct("<cI")
_LENGTHS = {length: struct.Struct(f"<{length}I") for length in (2, 5, 6)}

RECORD, START, END, FILE, ACTION, ACTION_END = b"r", b"s", b"e", b"f", b"a", b"z"
SEALED, NOTE = b"x", b"n"  #: no longer written; journals of older versions may hold them

Part = tuple[bytes, tuple[bytes, ...]]  #: its kind, and its content in pieces
Columns = dict[str, Any]


@value
class Frame:
    first: int  #: the number of its first audit record
    records: tuple[bytes, ...]
    note: str | None = None  #: a signed checkpoint over the log up to here: older versions only
    started: tuple[Columns, ...] = ()
    ended: tuple[Columns, ...] = ()  #: rows with signed receipts
    sealed: tuple[Columns, ...] = ()  #: rows with unsigned receipts: older versions only
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)  #: address and content
    actions: tuple[
        tuple[int, str], ...
    ] = ()  #: opened actions of the pure plane: record number and owner
    actions_ended: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.first + len(self.records) + len(self.sealed) - 1


def packed(first: int, parts: Iterable[Part]) -> bytes:
    pieces = [_FIRST.pack(first)]
    for kind, content in parts:
        pieces.append(_PART.pack(kind, sum(map(len, content))))
        pieces += content
    return b"".join(pieces)


def columns(*values: bytes) -> tuple[bytes, ...]:
    """Several values as the content of one part."""
    return _LENGTHS[len(values)].pack(*map(len, values)), *values


def unpacked(payload: bytes) -> Frame:
    """The frame that `packed` made; any other bytes are a `ValueError`."""
    found: dict[bytes, list[bytes]] = {}
    for kind, content in _parts(payload):
        found.setdefault(kind, []).append(content)
    notes = found.get(NOTE)
    return Frame(
        first=_FIRST.unpack_from(payload)[0],
        records=tuple(found.get(RECORD, ())),
        note=notes[0].decode() if notes else None,
        started=tuple(_named(STARTED, STARTED_DOCUMENTS, each) for each in found.get(START, ())),
        ended=tuple(_named(ENDED, ENDED_DOCUMENTS, each) for each in found.get(END, ())),
        sealed=tuple(_named(TO_SIGN, TO_SIGN_DOCUMENTS, each) for each in found.get(SEALED, ())),
        files=tuple((blake3.decode(), data) for blake3, data in _pairs(found.get(FILE, ()))),
        actions=tuple((int(seq), who.decode()) for seq, who in _pairs(found.get(ACTION, ()))),
        actions_ended=tuple(int(each) for each in found.get(ACTION_END, ())),
    )


def _parts(payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _FIRST.size
    while at < len(payload):
        kind, length = _PART.unpack_from(payload, at)
        at += _PART.size
        yield kind, payload[at : at + length]
        at += length


def _split(content: bytes, count: int) -> list[bytes]:
    lengths = _LENGTHS[count]
    at, values = lengths.size, []
    for length in lengths.unpack_from(content):
        values.append(content[at : at + length])
        at += length
    return values


def _named(names: tuple[str, ...], documents: tuple[str, ...], content: bytes) -> Columns:
    short, *long = _split(content, 1 + len(documents))
    return {
        **dict(zip(names, json.loads(short), strict=True)),
        **{name: value.decode() for name, value in zip(documents, long, strict=True)},
    }


def _pairs(contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    return (_split(each, 2) for each in contents)
