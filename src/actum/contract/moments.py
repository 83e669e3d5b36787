"""Moments as text, as `datetime.isoformat` writes them.

Every record holds several, most of them of the same second, and what the standard library does to
write one is among the longest steps on the way to a start.
"""

from __future__ import annotations

from datetime import UTC, datetime

#: A second of UTC, and its text.
_second: tuple[tuple[int, ...], str] = ((), "")


def moment_text(moment: datetime) -> str:
    """`moment.isoformat()`."""
    if moment.tzinfo is not UTC:
        return moment.isoformat()
    fraction = moment.microsecond
    return f"{_text(moment)}.{fraction:06d}+00:00" if fraction else f"{_text(moment)}+00:00"


def utc_text(moment: datetime) -> str:
    """UTC with milliseconds and a Z (RFC 3339)."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return _text(moment) + milliseconds(moment.microsecond // 1000)


def _text(moment: datetime) -> str:
    global _second  # noqa: PLW0603 -- one assignment: threads may disagree about which it is
    known, text = _second
    second = (
        moment.second,
        moment.minute,
        moment.hour,
        moment.day,
        moment.month,
        moment.year,
    )
    if second != known:
        text = moment.replace(microsecond=0, tzinfo=None).isoformat()
        _second = second, text
    return text


def milliseconds(number: int) -> str:
    """How `utc_text` ends."""
    return f".{str(1000 + number)[1:]}Z"  # which Python does faster than to pad
