"""Times and sizes as callers write them: ``5``, ``2.5``, ``"500ms"``, ``"2m"``, ``"256M"``."""

from __future__ import annotations

import re

from actum.contract.limits import MIB
from actum.documents.source_position import shown
from actum.errors import ContractInvalid, Problem

TIME = "seconds as a number, such as 5 or 2.5, or text such as 500ms, 5s or 2m"
SIZE = "bytes as a whole number, at least 1048576, or text such as 256M or 1G"

#: At most 12 digits: Python refuses to convert thousands of them.
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)"
_DURATION = re.compile(rf"{_NUMBER}(ms|s|m|h)?")
_SIZE = re.compile(rf"{_NUMBER}(?:([MG])(?:i?B)?)?", re.IGNORECASE)
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_MIB = {"M": 1, "G": 1_024}
#: No limit comes near it; what is above is no quantity but a mistake.
_MOST = 10**15


def duration_ms(given: object, field: str = "timeout") -> int:
    """Milliseconds. A number without a unit is seconds."""
    if isinstance(given, str):
        match = _DURATION.fullmatch(given)
        if match is None:
            raise unreadable(field, given, TIME)
        return round(_number(match[1]) * _MS[match[2] or "s"])
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise unreadable(field, given, TIME)
    if not 0 < given < _MOST:  # NaN is neither
        raise _problem(field, f"{shown_number(given)} is no length of time.", TIME)
    return round(given * 1_000)


def size_mb(given: object, field: str = "memory") -> int:
    """Whole MiB, rounded down: never more than was asked for. A number without a unit is bytes."""
    if isinstance(given, str):
        match = _SIZE.fullmatch(given)
        if match is None:
            raise unreadable(field, given, SIZE)
        if match[2]:
            return int(_number(match[1]) * _MIB[match[2].upper()])
        given = _number(match[1])
        if isinstance(given, float):
            raise unreadable(field, match[1], SIZE)
    if isinstance(given, bool) or not isinstance(given, int):
        raise unreadable(field, given, SIZE)
    if not MIB <= given < _MOST:
        raise _problem(field, f"{shown_number(given)} bytes are no limit of memory.", SIZE)
    return given // MIB


def unreadable(field: str, given: object, permitted: str) -> ContractInvalid:
    if isinstance(given, str):
        return _problem(field, f"{shown(given)} cannot be read.", permitted, shown(given))
    return _problem(field, f"{given_as(given)}.", permitted)


def given_as(value: object) -> str:
    """What a caller gave, for a message: a number or a text with its type, else the type alone."""
    kind = type(value).__name__
    named = f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
    if value is None:
        return "it is None"
    if isinstance(value, str):
        return f"{shown(value)} is {named}"
    if isinstance(value, (int, float)):
        return f"{shown_number(value)} is {named}"
    return f"it is {named}"


def shown_number(value: float) -> str:
    # Python refuses to write an int of thousands of digits.
    if isinstance(value, int) and value.bit_length() > 64:
        return "the number"
    return repr(value)


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _problem(field: str, message: str, permitted: str, value: str = "") -> ContractInvalid:
    found = Problem(field=field, message=message, value=value, permitted=permitted)
    return ContractInvalid((found,))
