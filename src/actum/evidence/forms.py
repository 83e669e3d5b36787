"""Documents that differ in a few words, encoded once and filled in.

Most executions repeat another: the same tool, arguments and asker. What is written down of them
differs in ids, digests and moments, which JSON writes as they are. Such documents are made once, by
the functions that make all others, of facts that have a mark in the place of each of those words.
What stands between the marks is a form.

A word that JSON writes in another way, or that stands for more than itself, is not `plain`, and
whoever has one makes the document itself. A form that does not give back, to the byte, a document
that was made without it is none. Proved by tests/unit/evidence/test_forms.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter

Words = list[bytes]  #: in an order that whoever makes a form chooses


class Form:
    """One document with holes."""

    __slots__ = ("_take", "_text")

    def __init__(self, document: bytes, marks: list[str]) -> None:
        """`document` says each of `marks` where it would say the word of the same place."""
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", document.decode())
        self._text = "%b".join(each.replace("%", "%%") for each in pieces[::2]).encode()
        self._take: Callable[[Words], tuple[bytes, ...]]
        self._take = itemgetter(*map(marks.index, pieces[1::2]))

    def filled(self, words: Words) -> bytes:
        return self._text % self._take(words)


# Nobody can ask for something that says a mark: they are other ones in every process.
_DRAWN = os.urandom(8).hex()


def mark(number: int) -> str:
    """A word that stands for another one; `number`, below 100, says for which."""
    return f"{_DRAWN}{number:02d}"


def marked_number(number: int = 0) -> int:
    """The same where a number is wanted; JSON has it as it is."""
    return (1 << 44 | int(_DRAWN[:11], 16)) * 100 + number


def marked_moment(number: int = 0) -> datetime:
    """The same where a moment is wanted."""
    drawn = timedelta(milliseconds=int(_DRAWN[:11], 16), days=number)
    return datetime(1, 1, 1, tzinfo=UTC) + drawn


_ID = "00000000-0000-0000-0000-000000000000"
_DIGEST = "0" * 64
_MOMENT = "0000-00-00T00:00:00.000Z"
_HEX = b"0123456789abcdef"
#: Of a text what is no hexadecimal digit, and of that only what stands in the three above.
_SHAPE = bytes(
    ord("0") if byte in _HEX else byte if byte in b"-T:.Z\n" else ord("?") for byte in range(256)
)


def plain(words: tuple[str, ...], shape: bytes) -> Words | None:
    """As bytes, if each of them looks as one that we draw, work out or write ourselves."""
    text = "\n".join(words).encode("utf-8", "replace")
    return text.split(b"\n") if text.translate(_SHAPE) == shape else None


def shape(ids: int, digests: int, moments: int) -> bytes:
    """Of so many words, in this order, for `plain`."""
    return "\n".join([_ID] * ids + [_DIGEST] * digests + [_MOMENT] * moments).encode()
