"""Tables of the command line: fitted and coloured on a terminal, whole and plain elsewhere.

On a terminal that is too narrow, ids are shown by their first characters, which every command
takes as an id (`id_prefix`), and texts are cut. Elsewhere nothing is left out, so that a program
can read the columns.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum

from actum.doors.cli import terminal
from actum.doors.cli.terminal import Tone
from actum.value import value

_GAP = "  "
_SHORT_ID = 8
_LEAST_TEXT = 8
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Kind(Enum):
    TEXT = "text"  #: cut where the terminal is too narrow
    WHOLE = "whole"  #: never cut
    ID = "id"  #: a UUID may be shown by its beginning
    STATE = "state"  #: coloured by its word, never cut


@value(kw_only=False)
class Column:
    head: str
    kind: Kind = Kind.TEXT


def ids(head: str) -> Column:
    return Column(head, Kind.ID)


def states(head: str) -> Column:
    return Column(head, Kind.STATE)


def whole(head: str) -> Column:
    return Column(head, Kind.WHOLE)


def show(
    columns: Sequence[Column | str], rows: Iterable[Sequence[str]], *, heads: bool = True
) -> None:
    """Columns as wide as they need to be; the last one is never padded."""
    about = [Column(each) if isinstance(each, str) else each for each in columns]
    cells = [[terminal.one_line(cell) for cell in row] for row in rows]
    room = terminal.width()
    if room is not None:
        cells = _fitted(about, cells, room)
    names = [column.head for column in about]
    widths = [max(_width(row[number]) for row in (names, *cells)) for number in range(len(about))]
    if heads:
        terminal.spans(_line(names, widths, [Tone.HEAD] * len(about)))
    for row in cells:
        tones = [
            tone_of(cell) if column.kind is Kind.STATE else None
            for column, cell in zip(about, row, strict=True)
        ]
        terminal.spans(_line(row, widths, tones))


def _line(
    cells: Sequence[str], widths: Sequence[int], tones: Sequence[Tone | None]
) -> list[tuple[str, Tone | None]]:
    parts: list[tuple[str, Tone | None]] = []
    for cell, width, tone in zip(cells, widths, tones, strict=True):
        parts += [(cell, tone), (" " * (width - _width(cell)) + _GAP, None)]
    return parts[:-1]


_GOOD = {
    *("succeeded", "success", "approved", "approve", "granted", "committed", "active"),
    *("unblock", "yes"),
}
_WAITING = {"pending", "waiting", "running", "requested", "held", "conflict", "experimental"}
_QUIET = {
    *("used", "noted", "expired", "unchanged", "discarded", "undone", "removed", "deprecated"),
    *("deprecate", "ended", "rotated", "revoked"),
}


def tone_of(word: str) -> Tone | None:
    """The tone of a state, outcome or decision; a word that is not listed is a problem."""
    known = word.lower()
    for words, tone in ((_GOOD, Tone.GOOD), (_WAITING, Tone.WAITING), (_QUIET, Tone.QUIET)):
        if known in words:
            return tone
    return Tone.BAD if known else None


def _fitted(about: Sequence[Column], cells: list[list[str]], room: int) -> list[list[str]]:
    """The cells, shortened until the table fits, as far as their kinds permit."""

    def widths() -> list[int]:
        return [
            max([len(column.head), *(_width(row[number]) for row in cells)])
            for number, column in enumerate(about)
        ]

    def excess(found: Sequence[int]) -> int:
        return sum(found) + len(_GAP) * (len(found) - 1) - room

    for number, column in enumerate(about):
        if column.kind is Kind.ID and excess(widths()) > 0:
            _shorten_ids(cells, number)
    wide = widths()
    while (left := excess(wide)) > 0:
        texts = [number for number, column in enumerate(about) if column.kind is Kind.TEXT]
        widest = max(texts, key=lambda number: wide[number], default=None)
        if widest is None or wide[widest] <= _LEAST_TEXT:
            break
        # Down to the next widest, so that no column is cut before wider ones are.
        others = max([wide[number] for number in texts if number != widest], default=0)
        least = max(_LEAST_TEXT, min(others, wide[widest] - 1))
        wide[widest] = max(least, wide[widest] - left)
    return [
        [
            _cut(cell, wide[number]) if about[number].kind is Kind.TEXT else cell
            for number, cell in enumerate(row)
        ]
        for row in cells
    ]


def _shorten_ids(cells: list[list[str]], number: int) -> None:
    """Show UUIDs by their beginning, except where two of the column begin alike."""
    full = {row[number] for row in cells}
    begun: dict[str, int] = {}
    for each in full:
        begun[each[:_SHORT_ID]] = begun.get(each[:_SHORT_ID], 0) + 1
    for row in cells:
        cell = row[number]
        if _UUID.fullmatch(cell) and begun[cell[:_SHORT_ID]] == 1:
            row[number] = cell[:_SHORT_ID]


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept = ""
    for letter in text:
        if _width(kept + letter) >= width:
            break
        kept += letter
    return f"{kept}…"


def _width(text: str) -> int:
    """Columns that a terminal needs for the text: two for wide letters, none for marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
