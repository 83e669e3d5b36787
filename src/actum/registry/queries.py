"""JSONPath (RFC 9535) and the templates of `format`: read once, used for every answer.

A template is text with placeholders: `{name}` or `{$.any.path}`, which must name at most one
value; `{{` and `}}` are braces. There are no attributes, conversions or expressions: nothing in a
template or in a value can reach beyond the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from actum.contract.model import Json

if TYPE_CHECKING:
    from jsonpath_rfc9535 import JSONPathQuery

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: One piece of a template: a doubled brace, a placeholder (quoted text may hold braces), a brace.
_PIECE = re.compile(r"""\{\{|\}\}|\{((?:[^{}'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)\}|[{}]""")


class QueryFailed(Exception):
    """A query that no JSONPath is, or a value that it cannot be put to."""


@lru_cache(maxsize=256)
def _compiled(text: str) -> JSONPathQuery:
    import jsonpath_rfc9535

    try:
        return jsonpath_rfc9535.compile(text)
    except (jsonpath_rfc9535.JSONPathError, RecursionError) as error:
        raise QueryFailed(f"{text!r} is no JSONPath: {error}") from error


def is_singular(text: str) -> bool:
    """Whether the query names one place at most, by its form."""
    return _compiled(text).singular_query()


def find(text: str, value: Json) -> list[Json]:
    """What the query finds, in order; empty if there is nothing."""
    import jsonpath_rfc9535

    query = _compiled(text)
    try:
        return list(query.find(value).values())
    except (jsonpath_rfc9535.JSONPathError, RecursionError) as error:
        raise QueryFailed(f"{text} cannot be put to this value: {error}") from error


@lru_cache(maxsize=256)
def parse_format(template: str) -> tuple[tuple[str, bool], ...]:
    """The pieces of a template: (text, False), or (query, True) for a placeholder."""
    return tuple(_pieces(template))


def _pieces(template: str) -> Iterator[tuple[str, bool]]:
    position = 0
    for match in _PIECE.finditer(template):
        if match.start() > position:
            yield template[position : match.start()], False
        position = match.end()
        if match[0] in ("{{", "}}"):
            yield match[0][0], False
        elif match[1] is None:
            raise QueryFailed(f"a lone {match[0]} at {match.start()}; write it twice")
        else:
            yield _placeholder(match[1]), True
    if position < len(template):
        yield template[position:], False


def _placeholder(text: str) -> str:
    query = f"$.{text}" if _NAME.fullmatch(text) else text
    if not query.startswith("$") or not is_singular(query):
        raise QueryFailed(f"{{{text}}} is no placeholder; write a name or a path such as {{$.a.b}}")
    return query
