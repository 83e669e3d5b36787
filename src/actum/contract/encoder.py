"""Sorted, compact JSON text: the standard library's encoder, or a faster one with equal bytes.

A process that writes one record does not earn back the import of the faster one (about 8 ms); a
`Runtime` that stays open does within some dozens, and calls `hasten`. Where both can encode a
value, the bytes are equal (tests/unit/contract/test_encoder.py). The standard encoder handles
values that the faster one cannot encode exactly or would encode differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_plain = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    check_circular=False,  # callers pass trees that they just built
).encode


class _Encoder:
    """The encoder in use; both are correct at any time."""

    def __init__(self) -> None:
        self.fast: Callable[[Any], bytes] | None = None


_encoder = _Encoder()


def hasten() -> None:
    """Use the faster encoder from now on."""
    if _encoder.fast is None:
        import msgspec

        _encoder.fast = msgspec.json.Encoder(order="sorted").encode


def encode(value: Any) -> bytes:
    """UTF-8 JSON of a tree without floats. A lone surrogate becomes its JSON escape."""
    if _encoder.fast is not None:
        try:
            return _encoder.fast(value)
        except (ValueError, OverflowError, TypeError):
            pass  # a lone surrogate, or a number beyond 64 bits
    return _plain(value).encode("utf-8", "backslashreplace")
