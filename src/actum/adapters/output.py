"""Output transforms: what a tool said becomes what was asked for, in the order of the list.

`parse` reads text (json, json_lines, csv, yaml, lines, text), `extract` takes a part by JSONPath
(RFC 9535), `format` puts values into a template. Whatever cannot be done exactly as written is an
`OutputInvalid`: nothing is skipped, guessed or half done, and the raw output stays as it was.
Their specs were judged when the adapter was loaded (`registry.transforms`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from actum.adapters.parsers import OutputInvalid, decode, parse_text
from actum.contract.limits import STDOUT_BYTES
from actum.contract.model import Json
from actum.registry.model import Transform
from actum.registry.queries import QueryFailed, find, is_singular, parse_format
from actum.value import value


@value
class Said:
    """What there is to transform: bytes, and the value if whoever spoke had one to give."""

    raw: bytes
    truncated: bool = False
    has_value: bool = False
    value: Json = None
    failure: Mapping[str, str] | None = None  #: type and message of what a function raised


def apply_output_transforms(transforms: tuple[Transform, ...], said: Said) -> Json:
    """The value that comes out; without transforms, what was said as a value, or None."""
    value: Json = said.value if said.has_value else None
    for index, transform in enumerate(transforms):
        first = index == 0
        if first and not said.has_value and transform.type != "parse":
            raise OutputInvalid(
                f"transforms.output[0] is {transform.type}, and nothing was parsed yet.",
                remedy="Put a parse transform before it.",
            )
        match transform.type:
            case "parse":
                text = _whole(said) if first else _text(value, index)
                where = "stdout" if first else f"what transforms.output[{index}] is given"
                value = parse_text(transform.spec, text, where)
            case "extract":
                value = _extracted(transform.spec, value)
            case "format":
                value = _formatted(transform.spec, value)
            case other:
                raise AssertionError(f"a transform {other} was loaded")
    return value


def _whole(said: Said) -> str:
    """A truncated stream is refused: the first half of a document is another document."""
    if said.truncated or len(said.raw) > STDOUT_BYTES:
        raise OutputInvalid(
            f"stdout is over {STDOUT_BYTES} bytes and was cut, so it cannot be parsed.",
            remedy="Ask the tool for less output.",
        )
    return decode(said.raw)


def _text(value: Json, index: int) -> str:
    if isinstance(value, str):
        return value
    raise OutputInvalid(f"transforms.output[{index}] parses text, but was given {_kind(value)}.")


def _extracted(query: str, value: Json) -> Json:
    """The value at a path that names one place; of any other query the list of what it finds."""
    try:
        found = find(query, value)
        if not is_singular(query):
            return found
    except QueryFailed as error:
        raise OutputInvalid(f"extract: {error}.") from error
    if not found:
        raise OutputInvalid(f"extract: there is nothing at {query} in {_kind(value)}.")
    return found[0]


def _formatted(template: str, value: Json) -> str:
    parts = []
    for text, is_query in parse_format(template):
        if not is_query:
            parts.append(text)
            continue
        try:
            parts.append(_plain(_extracted(text, value)))
        except OutputInvalid as error:
            raise OutputInvalid(f"format: {error.message}") from error
    return "".join(parts)


def _plain(value: Json) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _kind(value: Json) -> str:
    """What kind of value it is; never the value, which may be the tool's secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
