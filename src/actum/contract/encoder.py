"""JSON text, sorted and tight: the standard library's encoder, or a faster one with the same bytes.

A process that makes one record does not earn back the import of the faster one (about 8 ms); a
`Runtime` that stays open does within some dozens, and calls `hasten`. For what both can say they
say the same, byte for byte (tests/unit/contract/test_encoder.py); what the faster one cannot say
exactly, or would say differently, is left to the other.
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
    check_circular=False,  # what is encoded here are trees that we have just built
).encode


class _Encoder:
    """Which one is in use; both are right at any time."""

    def __init__(self) -> None:
        self.fast: Callable[[Any], bytes] | None = None


_encoder = _Encoder()


def hasten() -> None:
    """Use the faster encoder from here on."""
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
