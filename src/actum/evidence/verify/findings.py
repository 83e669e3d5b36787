"""The result of verification: one finding per check, passed or failed.

A failed one names the table or file, the row, the column, and in short the expected and the found
value. An unreadable value (another type, no JSON, nothing at all) is a difference like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from actum.errors import ActumError
from actum.value import value

#: Errors that malformed data causes in code that expects the data we wrote.
DATA_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError),
    *(OSError, ActumError),
)
_SHOWN = 48


@value(kw_only=False)
class Finding:
    """One thing that was checked."""

    subject: str  #: e.g. ``receipt 3f…``, ``evidence record 8a…``, ``file artifact/report.json``
    check: str  #: what about it
    passed: bool
    detail: str = ""  #: on failure: what differs


def judged(subject: str, check: str, passed: bool, otherwise: str) -> Finding:
    return Finding(subject, check, passed, "" if passed else otherwise)


def difference(where: str, expected: Any, found: Any) -> str:
    """What differs in one place, e.g. ``executions.outcome``."""
    return f"{where}: expected {shown(expected)}, found {shown(found)}"


def shown(held: Any) -> str:
    """A value in short."""
    if held is None:
        return "nothing"
    if isinstance(held, bytes):
        return f"{len(held)} bytes"
    text = held if isinstance(held, str) else repr(held)
    if not text.isprintable() or not text:
        text = ascii(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def guarded(subject: str, check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The same findings; data that stops them is the last one."""
    try:
        yield from findings
    except DATA_ERRORS as error:
        yield Finding(subject, check, False, f"it cannot be read: {said(error)}")


def said(error: BaseException) -> str:
    """An error in one line of plain words."""
    if isinstance(error, ActumError):
        return error.message
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    text = str(error).splitlines()[0][:120] if str(error) else ""
    return f"{type(error).__name__} {text}".rstrip()
