"""Access tokens that were got with a secret, kept for the next call: in memory, until they expire.

A token is as good as the secret while it lives, so it is treated as one: it goes to the driver over
a descriptor, is taken out of everything that comes back, and is in no file, plan or record. It is
kept for one approval of one tool, one adapter and one value of the secret. What is handed in here
is a tool's word: anything that is no usable token is not kept.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import threading
import time
from collections.abc import Callable

from actum.value import value

#: A token that is about to expire could do so on its way.
_EARLY_S = 30.0
_LONGEST_S = 86_400.0
#: Shorter ones could not be taken out of an answer without taking innocent words along.
_LEAST_CHARACTERS, _MOST_CHARACTERS = 16, 8_192
_MOST = 256


@value(kw_only=False)
class _Kept:
    token: bytes
    until: float


class Tokens:
    """The tokens of one runtime."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[bytes, _Kept] = {}
        self._guard = threading.Lock()
        self._salt = os.urandom(32)  # a key must not help anyone to guess the secret

    def key(self, holder: str, secret: bytes) -> bytes:
        """`holder` tells the adapter, in which token_url, client_id and scope stand: with another
        one of these, or another secret, it is another key."""
        return hmac.digest(self._salt, holder.encode() + b"\0" + secret, hashlib.sha256)

    def get(self, key: bytes) -> bytes | None:
        with self._guard:
            kept = self._kept.get(key)
            if kept is not None and kept.until <= self._now():
                del self._kept[key]
                return None
        return None if kept is None else kept.token

    def put(self, key: bytes, told: bytes, since: float) -> None:
        """What a driver said that it got after `since`; nothing usable means: forget the last."""
        found = _usable(told)
        with self._guard:
            self._kept.pop(key, None)
            if found is None:
                return
            token, lasts_s = found
            until = since + min(lasts_s, _LONGEST_S) - _EARLY_S
            if until > self._now():
                self._kept[key] = _Kept(token, until)
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]


def _usable(told: bytes) -> tuple[bytes, float] | None:
    try:
        document = json.loads(told)
        token, lasts_s = document["access_token"], document["expires_in"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if type(token) is not str or not token.isascii() or not token.isprintable() or " " in token:
        return None
    if type(lasts_s) not in (int, float) or not math.isfinite(lasts_s):
        return None
    if not _LEAST_CHARACTERS <= len(token) <= _MOST_CHARACTERS:
        return None
    return token.encode(), float(lasts_s)
