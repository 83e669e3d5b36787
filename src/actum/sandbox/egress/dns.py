"""A minimal DNS codec for one kind of query: the addresses of a name.

Queries come from the tool and are hostile: one question, no compression, bounded; all others get no
answer. No part of a query is ever forwarded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from actum.contract.egress import Address
from actum.value import value

_HEADER = struct.Struct("!6H")
_A, _AAAA, _INTERNET = 1, 28, 1
_RESPONSE, _AUTHORITATIVE, _RECURSION_ASKED, _RECURSION = 0x8000, 0x0400, 0x0100, 0x0080
_VERSIONS = {_A: 4, _AAAA: 6}
_ADDRESSES = 8  #: in one reply: it fits into a datagram of 512 bytes
_NAME_ERROR = 3
_TTL_S = 5
_NAME_BYTES = 253
_NAME_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


@value(kw_only=False)
class Question:
    identity: int
    flags: int
    name: str  #: lower case, without the final dot; "" for a name that is never answered
    kind: int
    section: bytes  #: the question as received, repeated in the answer

    @property
    def wants_ipv4(self) -> bool:
        return self.kind == _A

    @property
    def wants_address(self) -> bool:
        return self.kind in _VERSIONS


def parse(packet: bytes) -> Question | None:
    """The one question of a query; ``None`` for anything else."""
    if len(packet) < _HEADER.size:
        return None
    identity, flags, questions, *_counts = _HEADER.unpack_from(packet)
    if flags & _RESPONSE or questions != 1:
        return None
    labels: list[bytes] = []
    at = _HEADER.size
    while at < len(packet) and packet[at]:
        length = packet[at]
        if length > 63 or at + 1 + length > len(packet):
            return None  # a question has no compression
        labels.append(packet[at + 1 : at + 1 + length].lower())
        at += 1 + length
    if at + 5 > len(packet):
        return None
    kind, group = struct.unpack_from("!HH", packet, at + 1)
    if group != _INTERNET:
        return None
    plain = all(set(label) <= _NAME_CHARACTERS for label in labels)
    name = b".".join(labels).decode() if plain else ""
    return Question(
        identity, flags, name if len(name) <= _NAME_BYTES else "", kind, packet[12 : at + 5]
    )


def answer(question: Question, addresses: Iterable[Address] = (), *, exists: bool) -> bytes:
    """A reply with the addresses of the kind that was requested. Without one, an empty reply that
    says whether the name exists."""
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | (question.flags & _RECURSION_ASKED)
    if not exists:
        flags |= _NAME_ERROR
    version = _VERSIONS.get(question.kind)
    packed = [address.packed for address in addresses if address.version == version][:_ADDRESSES]
    header = _HEADER.pack(question.identity, flags, 1, len(packed), 0, 0)
    records = b"".join(
        struct.pack("!HHHIH", 0xC00C, question.kind, _INTERNET, _TTL_S, len(each)) + each
        for each in packed
    )
    return header + question.section + records
