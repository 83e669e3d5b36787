"""Output transforms: a tool's output becomes the declared value, in the order of the list.

`parse` reads text (json, json_lines, csv, yaml, lines, text), `extract` takes a part by JSONPath
(RFC 9535), `format` puts values into a template. A transform that cannot be applied exactly as
written is an `OutputInvalid`: nothing is skipped or guessed, and the raw output stays unchanged.
The specs were checked when the adapter was loaded (`registry.transforms`).
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
class ToolAnswer:
    """The input of transforms: bytes, and a value if the driver returned one."""

    raw: bytes
    truncated: bool = False
    has_value: bool = False
    value: Json = None
    failure: Mapping[str, str] | None = None  #: type and message of a function's exception


def apply_output_transforms(transforms: tuple[Transform, ...], answer: ToolAnswer) -> Json:
    """The resulting value; without transforms, the value of the answer, or None."""
    value: Json = answer.value if answer.has_value else None
    for index, transform in enumerate(transforms):
        first = index == 0
        if first and not answer.has_value and transform.type != "parse":
            raise OutputInvalid(
                f"transforms.output[0] is {transform.type}, but nothing was parsed before it.",
                remedy="Put a parse transform before it.",
            )
        match transform.type:
            case "parse":
                text = _whole(answer) if first else _text(value, index)
                where = "stdout" if first else f"the input of transforms.output[{index}]"
                value = parse_text(transform.spec, text, where)
            case "extract":
                value = _extracted(transform.spec, value)
            case "format":
                value = _formatted(transform.spec, value)
            case other:
                raise AssertionError(f"a transform {other} was loaded")
    return value


def _whole(answer: ToolAnswer) -> str:
    """A truncated stream is refused: the first half of a document is another document."""
    if answer.truncated or len(answer.raw) > STDOUT_BYTES:
        raise OutputInvalid(
            f"stdout is over {STDOUT_BYTES} bytes and was truncated, so it cannot be parsed.",
            remedy="Ask the tool for less output.",
        )
    return decode(answer.raw)


def _text(value: Json, index: int) -> str:
    if isinstance(value, str):
        return value
    raise OutputInvalid(f"transforms.output[{index}] reads text, but its input is {_kind(value)}.")


def _extracted(query: str, value: Json) -> Json:
    """The value of a singular path; for any other query the list of its matches."""
    try:
        found = find(query, value)
        if not is_singular(query):
            return found
    except QueryFailed as error:
        raise OutputInvalid(f"extract: {error}.") from error
    if not found:
        raise OutputInvalid(f"extract: {query} matches nothing in {_kind(value)}.")
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
    """The kind of a value; never the value, which may be the tool's secret."""
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
