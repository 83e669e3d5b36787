"""Access tokens obtained with a secret, cached for the next call: in memory, until they expire.

A token is as powerful as the secret while it is valid, so it is treated as one: the driver gets it
over a descriptor, redaction removes it from all output, and it is in no file, plan or record. It
is cached for one approval of one tool, one adapter and one value of the secret. The input comes
from a tool: anything that is not a usable token is dropped.
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

#: A token that is about to expire could do so in transit.
_EARLY_S = 30.0
_LONGEST_S = 86_400.0
#: Redacting shorter ones would also remove ordinary words.
_LEAST_CHARACTERS, _MOST_CHARACTERS = 16, 8_192
_MOST = 256


@value(kw_only=False)
class _Cached:
    token: bytes
    until: float


class Tokens:
    """The tokens of one runtime."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._cached: dict[bytes, _Cached] = {}
        self._guard = threading.Lock()
        self._salt = os.urandom(32)  # a key must not help to guess the secret

    def key(self, holder: str, secret: bytes) -> bytes:
        """`holder` identifies the adapter, which has token_url, client_id and scope: another one of
        these, or another secret, gives another key."""
        return hmac.digest(self._salt, holder.encode() + b"\0" + secret, hashlib.sha256)

    def get(self, key: bytes) -> bytes | None:
        with self._guard:
            cached = self._cached.get(key)
            if cached is not None and cached.until <= self._now():
                del self._cached[key]
                return None
        return None if cached is None else cached.token

    def put(self, key: bytes, answer: bytes, since: float) -> None:
        """Store a token that a driver got after `since`; an unusable one clears the cached one."""
        found = _usable(answer)
        with self._guard:
            self._cached.pop(key, None)
            if found is None:
                return
            token, lasts_s = found
            until = since + min(lasts_s, _LONGEST_S) - _EARLY_S
            if until > self._now():
                self._cached[key] = _Cached(token, until)
            while len(self._cached) > _MOST:
                del self._cached[next(iter(self._cached))]


def _usable(answer: bytes) -> tuple[bytes, float] | None:
    try:
        document = json.loads(answer)
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
