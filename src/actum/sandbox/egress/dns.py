"""Just enough DNS to answer one question: where is this name? Everything else gets nothing.

Queries come from the tool and are hostile: one question, no compression, bounded, or no answer at
all. Nothing of a query is ever sent on.
"""

from __future__ import annotations

import ipaddress
import struct

from actum.value import value

_HEADER = struct.Struct("!6H")
_A, _INTERNET = 1, 1
_RESPONSE, _AUTHORITATIVE, _RECURSION_ASKED, _RECURSION = 0x8000, 0x0400, 0x0100, 0x0080
_NAME_ERROR = 3
_TTL_S = 5
_NAME_BYTES = 253
_NAME_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


@value(kw_only=False)
class Question:
    identity: int
    flags: int
    name: str  #: lower case, without the final dot; "" when it is no name we could ever answer
    kind: int
    section: bytes  #: the question as it came, to be repeated in the answer

    @property
    def wants_ipv4(self) -> bool:
        return self.kind == _A


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
            return None  # compression has no place in a question
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


def answer(question: Question, address: ipaddress.IPv4Address | None, *, exists: bool) -> bytes:
    """A reply; with no address, an empty one that says whether the name exists at all."""
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | (question.flags & _RECURSION_ASKED)
    if not exists:
        flags |= _NAME_ERROR
    header = _HEADER.pack(question.identity, flags, 1, int(address is not None), 0, 0)
    if address is None:
        return header + question.section
    record = struct.pack("!HHHIH", 0xC00C, _A, _INTERNET, _TTL_S, 4) + address.packed
    return header + question.section + record
