"""A token is kept for whom it was got, as long as it is good, and never out of carelessness."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actum.secrets.tokens import Tokens

TOKEN = "a-token-of-some-length"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def told(token: Any = TOKEN, expires_in: Any = 3_600) -> bytes:
    return json.dumps({"access_token": token, "expires_in": expires_in}).encode()


def test_it_is_kept_until_shortly_before_it_expires() -> None:
    clock = Clock()
    tokens = Tokens(clock)
    key = tokens.key("tool", b"secret")
    assert tokens.get(key) is None
    tokens.put(key, told(), since=clock.now)
    clock.now += 3_569
    assert tokens.get(key) == TOKEN.encode()
    clock.now += 2
    assert tokens.get(key) is None
    clock.now -= 2
    assert tokens.get(key) is None, "it is gone, not hidden"


def test_it_is_for_one_holder_and_one_secret() -> None:
    tokens = Tokens(Clock())
    tokens.put(tokens.key("tool", b"secret"), told(), since=1_000.0)
    assert tokens.get(tokens.key("tool", b"secret")) == TOKEN.encode()
    assert tokens.get(tokens.key("other", b"secret")) is None
    assert tokens.get(tokens.key("tool", b"another")) is None
    assert Tokens().key("tool", b"secret") != tokens.key("tool", b"secret")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        b"[" * 100_000,
        told(token=None),
        told(token="short"),
        told(token="x" * 8_193),
        told(token="with a space in it, and long"),
        told(token="line\r\nbreak-in-a-header"),
        told(token="\u2603" * 20),
        told(expires_in=None),
        told(expires_in=True),
        told(expires_in="3600"),
        told(expires_in=-1),
        told(expires_in=29),
        b'{"access_token": "a-token-of-some-length", "expires_in": Infinity}',
    ],
)
def test_what_is_no_usable_token_is_not_kept_and_replaces_the_last(content: bytes) -> None:
    tokens = Tokens(Clock())
    key = tokens.key("tool", b"secret")
    tokens.put(key, told(), since=1_000.0)
    tokens.put(key, content, since=1_000.0)
    assert tokens.get(key) is None


def test_one_that_says_it_lasts_for_ever_does_not() -> None:
    clock = Clock()
    tokens = Tokens(clock)
    key = tokens.key("tool", b"secret")
    tokens.put(key, told(expires_in=10**12), since=clock.now)
    clock.now += 86_400
    assert tokens.get(key) is None


def test_there_are_never_too_many() -> None:
    tokens = Tokens(Clock())
    keys = [tokens.key(f"tool {number}", b"secret") for number in range(300)]
    for key in keys:
        tokens.put(key, told(), since=1_000.0)
    assert [key for key in keys if tokens.get(key)] == keys[-256:]
