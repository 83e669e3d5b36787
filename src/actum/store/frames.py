"""What one frame of the journal says: audit records, a checkpoint over them, what they are of.

A frame is one commit: all of it is filed or nothing. Its parts are bytes as they will be stored,
one behind the other, each with its kind and length; nothing is encoded twice to be laid down.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from actum.value import field, value

#: Columns of an execution when it is about to start, and of its end. `pending_seq` and `final_seq`
#: are numbers; `result_json` may be absent, and no other.
STARTED = (
    *("execution_id", "identity_sha256", "contract_sha256", "trace_id", "session", "tool_id"),
    *("started_at", "owner", "opening", "pending_seq"),
)
ENDED = (
    *("execution_id", "outcome", "result_json", "receipt_id", "ended_at", "evidence_id"),
    *("evidence_ref", "record", "envelope", "sha256", "final_seq", "events"),
)

_FIRST = struct.Struct("<Q")
_PART = struct.Struct("<cI")
_LENGTHS = {length: struct.Struct(f"<{length}I") for length in (2, len(STARTED), len(ENDED))}

RECORD, NOTE, START, END, FILE, ACTION, ACTION_END = b"r", b"n", b"s", b"e", b"f", b"a", b"z"

Part = tuple[bytes, bytes]
Columns = dict[str, str]


@value
class Frame:
    first: int  #: the number of its first audit record
    records: tuple[bytes, ...]
    note: str | None = None  #: the signed checkpoint behind the last of them
    started: tuple[Columns, ...] = ()
    ended: tuple[Columns, ...] = ()
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)  #: address and content
    actions: tuple[tuple[int, str], ...] = ()  #: of the pure plane, opened: record and owner
    actions_ended: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


def packed(first: int, parts: Iterable[Part]) -> bytes:
    pieces = [_FIRST.pack(first)]
    for kind, content in parts:
        pieces += _PART.pack(kind, len(content)), content
    return b"".join(pieces)


def columns(values: Iterable[bytes]) -> bytes:
    """Several values as one part: of `STARTED`, of `ENDED`, or two."""
    held = tuple(values)
    return _LENGTHS[len(held)].pack(*map(len, held)) + b"".join(held)


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
        started=tuple(_named(STARTED, each) for each in found.get(START, ())),
        ended=tuple(_named(ENDED, each) for each in found.get(END, ())),
        files=tuple((blake3.decode(), data) for blake3, data in _pairs(found.get(FILE, ()))),
        actions=tuple((int(seq), who.decode()) for seq, who in _pairs(found.get(ACTION, ()))),
        actions_ended=tuple(int(each) for each in found.get(ACTION_END, ())),
    )


def _parts(payload: bytes) -> Iterator[Part]:
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


def _named(names: tuple[str, ...], content: bytes) -> Columns:
    return {
        name: value.decode() for name, value in zip(names, _split(content, len(names)), strict=True)
    }


def _pairs(contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    return (_split(each, 2) for each in contents)
