from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.sandbox.egress.protocols import OPENING_BYTES, protocol_of

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)


@pytest.mark.parametrize(
    ("opening", "protocol"),
    [
        (HELLO, "https"),
        (HELLO[:11], "https"),
        (b"\x16\x03\x09" + HELLO[3:], "unknown"),
        (HELLO[:5] + b"\x02" + HELLO[6:], "unknown"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "http"),
        (b"VERSION-CONTROL /x HTTP/1.0\n", "http"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n", "http"),
        (b"GET / HTTP/9.9\r\n", "unknown"),
        (b"GET /\r\n", "unknown"),
        (b"EHLO me\r\n", "unknown"),
        (b"USER a HTTP/1.1 \r\n", "unknown"),
        (b"*1\r\n$4\r\nPING\r\n", "unknown"),
        (b"SSH-2.0-x\r\n", "ssh"),
        (b"\x00", "unknown"),
        (b"GET /" + b"a" * OPENING_BYTES, "unknown"),
    ],
)
def test_the_opening_of_a_client_says_its_protocol(opening: bytes, protocol: str) -> None:
    assert protocol_of(opening) == protocol


@pytest.mark.parametrize("whole", [HELLO[:11], b"GET / HTTP/1.1\r\n", b"SSH-"])
def test_until_it_can_be_told_more_bytes_are_awaited(whole: bytes) -> None:
    assert [protocol_of(whole[:count]) for count in range(1, len(whole))] == [None] * (
        len(whole) - 1
    )
    assert protocol_of(whole) is not None


@given(st.binary(min_size=1, max_size=64))
def test_any_bytes_have_an_answer(opening: bytes) -> None:
    assert protocol_of(opening) in (None, "http", "https", "ssh", "unknown")
