"""A document for people: an indented outline on a terminal, JSON elsewhere.

Every key and value is escaped on its own, and a text of several lines has a mark before each of
them: no value can look like another field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actum.contract.model import Json
from actum.doors.cli import table, terminal
from actum.doors.cli.terminal import Tone

_STEP = "  "
_STATES = ("outcome", "status", "state")
_Parts = list[tuple[str, Tone | None]]


def show(document: Mapping[str, Json]) -> None:
    if terminal.width() is None:
        terminal.readable(dict(document))
        return
    for parts in _section(document, ""):
        terminal.spans(parts)


def _section(document: Mapping[str, Json], indent: str) -> Iterator[_Parts]:
    for name, value in document.items():
        yield from _field(str(name), value, indent)


def _field(name: str, value: Json, indent: str) -> Iterator[_Parts]:
    head: _Parts = [(indent, None), (f"{name}:", Tone.HEAD)]
    if isinstance(value, dict) and value:
        yield head
        yield from _section(value, indent + _STEP)
    elif isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        yield head
        for each in value:
            yield from _item(each, indent + _STEP)
    elif isinstance(value, str) and "\n" in value:
        yield head
        for line in value.removesuffix("\n").split("\n"):
            yield [(f"{indent}{_STEP}| {line}", None)]
    else:
        tone = table.tone_of(str(value)) if name in _STATES and value else _tone(value)
        yield [*head, (" ", None), (_text(value), tone)]


def _item(value: Json, indent: str) -> Iterator[_Parts]:
    """One of a list: its first line has a dash."""
    if not isinstance(value, dict) or not value:
        yield [(f"{indent}- {_text(value)}", None)]
        return
    for number, parts in enumerate(_section(value, "")):
        yield [(f"{indent}{'- ' if number == 0 else _STEP}", None), *parts]


def _tone(value: Json) -> Tone | None:
    return Tone.QUIET if value in (None, [], {}) else None


def _text(value: Json) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return "none" if value == {} else str(value)
