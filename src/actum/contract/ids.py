"""Ids of executions, receipts and traces: random UUIDs (RFC 9562, version 4) as text.

The standard `uuid` module does more at import: it inspects the platform.
"""

from __future__ import annotations

import os

#: Ids drawn ahead, many per system call. Cleared in a forked child.
_drawn: list[str] = []
_AT_ONCE = 64
os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    try:
        return _drawn.pop()
    except IndexError:
        fresh = _draw(_AT_ONCE)
        _drawn.extend(fresh[1:])
        return fresh[0]


def _draw(count: int) -> list[str]:
    text = os.urandom(16 * count).hex()
    return [_named(text[start : start + 32]) for start in range(0, 32 * count, 32)]


#: The first digit of the fourth group: two of its bits are the UUID variant.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def _named(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"
