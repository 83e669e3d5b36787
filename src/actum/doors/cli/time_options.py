"""Points in time and ages on the command line: `2h`, `30d`, `2026-11-18`, `2026-11-18T12:00Z`.

Records have UTC, so a time without a zone is UTC too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

AGE = "AGE"
MOMENT = "AGE|DATE"

_AGE = re.compile(r"(\d{1,9})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def age(text: str) -> timedelta:
    """A whole number and its unit, as the type of an option."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age; write 90s, 10m, 2h, 30d or 4w.")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def is_age(text: str) -> bool:
    return _AGE.fullmatch(text) is not None


def moment(text: str) -> datetime:
    """An age before now, a date, or a date with a time, as the type of an option."""
    if _AGE.fullmatch(text):
        return before_now(age(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is neither an age (90s, 10m, 2h, 30d, 4w) nor a date"
            " (2026-11-18, 2026-11-18T12:00Z)."
        ) from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def before_now(length: timedelta) -> datetime:
    """That long ago; the first day of the calendar for an age beyond it."""
    try:
        return datetime.now(UTC) - length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
