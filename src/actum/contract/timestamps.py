"""Timestamps as text, as `datetime.isoformat` writes them.

Every record holds several, most of them of the same second, and formatting one with the standard
library is among the longest steps before a start.
"""

from __future__ import annotations

from datetime import UTC, datetime

#: The last second formatted, and its text.
_second: tuple[tuple[int, ...], str] = ((), "")


def iso_text(time: datetime) -> str:
    """`time.isoformat()`."""
    if time.tzinfo is not UTC:
        return time.isoformat()
    fraction = time.microsecond
    return f"{_text(time)}.{fraction:06d}+00:00" if fraction else f"{_text(time)}+00:00"


def utc_text(time: datetime) -> str:
    """UTC with milliseconds and a Z (RFC 3339)."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return _text(time) + milliseconds(time.microsecond // 1000)


def _text(time: datetime) -> str:
    global _second  # noqa: PLW0603 -- one atomic assignment; any thread's is valid
    known, text = _second
    second = (
        time.second,
        time.minute,
        time.hour,
        time.day,
        time.month,
        time.year,
    )
    if second != known:
        text = time.replace(microsecond=0, tzinfo=None).isoformat()
        _second = second, text
    return text


def milliseconds(number: int) -> str:
    """The end of an `utc_text`."""
    return f".{str(1000 + number)[1:]}Z"  # faster than padding
