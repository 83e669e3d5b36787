"""Finds secrets of a payload in an output.

A value is a secret when it is marked (`{"$secret": "..."}`), when its key names one, or when it
looks like a known kind of credential. Common encodings of it are found too. This finds mistakes and
plain copies; a malicious executor can always disguise a secret, so outputs are never recorded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from actum.contract.model import Json

MARK = "$secret"

_SECRET_KEY = re.compile(
    r"(?i)(^|[_\-.])(password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key"
    r"|credentials?|authorization|cookie)($|[_\-.])"
)
_KNOWN_KINDS = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+)"
)
#: Matches a part of everything that the two patterns above find, in any context.
_ANY_HINT = re.compile(
    r"(?i)passw|passphrase|secret|token|api[_-]?key|private[_-]?key|credential|authorization|cookie"
    r"|private key|gh[pousr]_|glpat-|sk-|akia|xox|eyj"
)
#: Shorter secrets are only found as a whole value: as a part of text they would match everywhere.
_SHORT = 4


def leaks(payload: Json, output: Json) -> bool:
    """Whether a secret of the payload occurs in the output, as a value, a key or a part of text."""
    return any_in(secrets_of(payload), output)


def secrets_of(payload: Json) -> set[str]:
    return set(_secrets(payload))


def has_none(encoded: str) -> bool:
    """Whether a payload, in canonical JSON, certainly holds no secret: not even a hint of one.

    That form escapes quotes, backslashes and control characters, and no letter of a hint.
    """
    return _ANY_HINT.search(encoded) is None


def any_in(hidden: set[str], output: Json) -> bool:
    if not hidden:
        return False
    whole = set(_texts(output))
    parts = {form for secret in hidden if len(secret) >= _SHORT for form in _forms(secret)}
    return bool(hidden & whole) or any(form in text for text in whole for form in parts)


def _secrets(payload: Json) -> Iterator[str]:
    stack: list[tuple[Any, bool]] = [(payload, False)]
    while stack:
        item, secret = stack.pop()
        if isinstance(item, dict):
            marked = secret or MARK in item
            for key, value in item.items():
                stack.append((value, marked or bool(_SECRET_KEY.search(key))))
        elif isinstance(item, list):
            stack.extend((value, secret) for value in item)
        elif secret and item not in (None, "", True, False):
            yield _as_text(item)
        elif isinstance(item, str):
            yield from (match[0] for match in _KNOWN_KINDS.finditer(item))


def _texts(output: Json) -> Iterator[str]:
    stack = [output]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield from item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif item is not None and not isinstance(item, bool):
            yield _as_text(item)


def _as_text(item: str | float) -> str:
    return item if isinstance(item, str) else repr(item)


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield secret
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    yield quote(secret, safe="")
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw), base64.b32encode(raw)):
        yield encoded.decode().rstrip("=")
