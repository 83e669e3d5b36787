"""The one canonical JSON encoder (RFC 8785) and the one digest module.

Everything that is hashed as JSON goes through `canonical`: UTF-8, keys in UTF-16 code unit order,
no white space, integers as integers. Values without an exact JSON form (NaN, infinities, integers
of 2^53 and beyond, keys that are not strings, lone surrogates, bytes, sets) are refused, not
rounded or guessed.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, BinaryIO

from actum.contract.encoder import encode
from actum.errors import ActumError

_SAFE = 2**53
_CHUNK = 1 << 20
#: Most parts of one value. A value that contains itself has more; the slower check reports it.
_MOST = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotCanonical(ActumError):
    """The value has no exact JSON form, so it has no digest."""

    code = "NON_JSON_PAYLOAD"


def canonical(value: Any) -> bytes:
    """Encode `value`; equal values give equal bytes on every machine."""
    if type(value) is str and value.isascii():
        return encode(value)
    if _simple(value):
        return encode(value)
    _require_json(value, "$")
    # Floats and non-ASCII keys need RFC 8785's number format and UTF-16 ordering.
    import rfc8785

    return rfc8785.dumps(value)


def _simple(value: Any) -> bool:
    """Whether a plain encoder is exact. Every digest runs this check, so it is one loop."""
    waiting = [value]
    for item in waiting:  # grows during the loop
        kind = type(item)
        if kind is str:
            if not item.isascii() and _SURROGATE.search(item):
                return False
        elif kind is dict:
            for key in item:
                if type(key) is not str or not key.isascii():
                    return False
            if len(waiting) > _MOST:
                return False
            waiting += item.values()
        elif kind is list or kind is tuple:
            if len(waiting) > _MOST:
                return False
            waiting += item
        elif kind is int:
            if not -_SAFE < item < _SAFE:
                return False
        elif item is not None and kind is not bool:
            return False
    return True


def _require_json(value: Any, where: str) -> None:
    """Refuse a value that is not JSON, and name its position."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise NotCanonical(f"{where}: a lone surrogate is not text.")
    elif isinstance(value, int):
        if not -_SAFE < value < _SAFE:
            raise NotCanonical(f"{where}: {value} is beyond 2^53; write it as a string.")
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotCanonical(f"{where}: {value} is not a JSON number.")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _require_json(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotCanonical(f"{where}: the key {key!r} is not a string.")
            _require_json(key, where)
            _require_json(item, f"{where}.{key}")
    else:
        raise NotCanonical(f"{where}: {type(value).__name__} has no JSON form.")


#: Empty hash, copied for each digest: OpenSSL makes a new one more slowly than it copies one.
_UNFED = hashlib.sha256()


def sha256_bytes(data: bytes) -> str:
    digest = _UNFED.copy()
    digest.update(data)
    return digest.hexdigest()


def sha256_json(value: Any) -> str:
    return sha256_bytes(canonical(value))


def sha256_file(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def blake3_bytes(data: bytes) -> str:
    import blake3

    return blake3.blake3(data).hexdigest()
