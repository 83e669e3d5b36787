from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.call import NetworkPolicy
from actum.contract.egress import Address, plan_egress
from actum.sandbox.egress import dns
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.events import Records
from actum.sandbox.egress.names import Names

A, AAAA, TXT = 1, 28, 16


def query(name: str, kind: int = A, identity: int = 7) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part)
    header = struct.pack("!6H", identity, 0x0100, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1)


def address_in(reply: bytes | None) -> str | None:
    assert reply is not None
    count = struct.unpack_from("!H", reply, 6)[0]
    return ".".join(str(byte) for byte in reply[-4:]) if count else None


def code_of(reply: bytes | None) -> int:
    assert reply is not None
    return struct.unpack_from("!H", reply, 2)[0] & 0xF


class Service:
    """The name service with doors that always open, unless told otherwise."""

    def __init__(self, *allow: str, names: int = 100, opens: bool = True, **bounds: int) -> None:
        policy = NetworkPolicy(enabled=True, allow=allow, deny=("no.w.test",), outbound=("http",))
        self.doors = Doors(plan_egress(policy), names=names)
        self.opened: list[tuple[str, tuple[int, ...]]] = []
        self.records = Records(Bounds(**bounds))
        self._opens = opens
        self._names = Names(self.doors, self.records, Bounds(**bounds), self._open, self._look_up)

    async def _look_up(self, name: str) -> tuple[list[Address], str]:
        return [], f"{name} was looked up"

    async def _open(self, address: str, ports: tuple[int, ...]) -> bool:
        self.opened.append((address, ports))
        self.doors.opened(address)
        return self._opens

    def ask(self, name: str, kind: int = A) -> bytes | None:
        return asyncio.run(self._names.answer(query(name, kind)))

    @property
    def refused(self) -> list[tuple[str, str]]:
        return [(one.host, one.refused) for one in self.records.all()]


def test_an_allowed_name_has_an_address_of_its_own() -> None:
    service = Service("a.test", "b.test")
    first, second = address_in(service.ask("a.test")), address_in(service.ask("B.Test."))
    assert first == service.doors.address_of("a.test")
    assert second == service.doors.address_of("b.test")
    assert first != second
    assert service.opened == []  # their listeners stood before the tool did


def test_a_name_under_a_wildcard_gets_its_door_with_the_first_question() -> None:
    service = Service("*.w.test", "*.w.test:8080")
    first = address_in(service.ask("x.w.test"))
    assert first is not None
    assert service.opened == [(first, (80, 8080))]
    assert address_in(service.ask("x.w.test")) == first
    assert len(service.opened) == 1


@pytest.mark.parametrize("name", ["evil.test", "w.test", "no.w.test", "x.w.test.evil", ""])
def test_a_name_that_is_not_allowed_does_not_exist_and_is_on_record(name: str) -> None:
    service = Service("*.w.test")
    assert code_of(service.ask(name)) == 3
    assert code_of(service.ask(name, AAAA)) == 3
    assert service.refused == [(name, "name not allowed")]


def test_other_kinds_of_questions_about_an_allowed_name_get_an_empty_answer() -> None:
    service = Service("a.test")
    for kind in (AAAA, TXT):
        reply = service.ask("a.test", kind)
        assert (code_of(reply), address_in(reply)) == (0, None)


def test_names_that_a_tool_invents_are_bounded() -> None:
    service = Service("*.w.test", "known.test", names=3)
    answers = [code_of(service.ask(f"n{number}.w.test")) for number in range(5)]
    assert answers == [0, 0, 0, 3, 3]
    assert service.refused == [("n3.w.test", "too many names"), ("n4.w.test", "too many names")]
    assert address_in(service.ask("known.test")) is not None


def test_questions_are_bounded() -> None:
    service = Service("a.test", questions=2)
    assert [service.ask("a.test") is not None for _ in range(4)] == [True, True, False, False]


def test_a_door_that_cannot_be_opened_is_no_address() -> None:
    service = Service("*.w.test", opens=False)
    assert code_of(service.ask("x.w.test")) == 3
    assert service.refused == [("x.w.test", "its ports are taken inside the sandbox")]


@given(st.binary(max_size=600))
def test_no_packet_whatever_breaks_the_parser(packet: bytes) -> None:
    question = dns.parse(packet)
    assert question is None or len(question.name) <= 253


@given(st.binary(max_size=300))
def test_no_question_whatever_breaks_the_service(tail: bytes) -> None:
    header = struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0)
    service = Service("*.w.test", "*")
    reply = asyncio.run(service._names.answer(header + tail))
    assert reply is None or reply[:2] == header[:2]


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        query("a.test")[:11],
        query("a.test")[:-1],
        struct.pack("!6H", 7, 0x8100, 1, 0, 0, 0) + query("a.test")[12:],  # an answer
        struct.pack("!6H", 7, 0x0100, 2, 0, 0, 0) + query("a.test")[12:],  # two questions
        struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",  # a pointer to itself
        query("a.test")[:-2] + b"\0\3",  # another class
    ],
)
def test_anything_but_one_plain_question_gets_no_answer(packet: bytes) -> None:
    assert dns.parse(packet) is None


def test_a_name_longer_than_dns_allows_is_no_name() -> None:
    question = dns.parse(query(".".join(["a" * 63] * 5)))
    assert question is not None
    assert question.name == ""
