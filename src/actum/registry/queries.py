"""JSONPath (RFC 9535) and the templates of `format`: parsed once, used for every answer.

A template is text with placeholders: `{name}` or `{$.any.path}`, which must match at most one
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
    """Invalid JSONPath, or a value that it cannot be applied to."""


@lru_cache(maxsize=256)
def _compiled(text: str) -> JSONPathQuery:
    import jsonpath_rfc9535

    try:
        return jsonpath_rfc9535.compile(text)
    except (jsonpath_rfc9535.JSONPathError, RecursionError) as error:
        raise QueryFailed(f"{text!r} is not a JSONPath: {error}") from error


@lru_cache(maxsize=256)
def is_singular(text: str) -> bool:
    """Whether the query can match at most one value, by its form."""
    return _compiled(text).singular_query()


@lru_cache(maxsize=256)
def _path(text: str) -> tuple[str | int, ...] | None:
    """Names and indices, if the query has nothing else."""
    from jsonpath_rfc9535.selectors import IndexSelector, NameSelector

    if not is_singular(text):
        return None
    path: list[str | int] = []
    for segment in _compiled(text).segments:
        match segment.selectors:
            case (NameSelector() as step,):
                path.append(step.name)
            case (IndexSelector() as step,):
                path.append(step.index)
            case _:
                return None
    return tuple(path)


def find(text: str, value: Json) -> list[Json]:
    """The matches of the query, in order; may be empty."""
    path = _path(text)
    if path is None:
        return _find(text, value)
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return []
            value = value[step]
        elif isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return []
    return [value]


def _find(text: str, value: Json) -> list[Json]:
    import jsonpath_rfc9535

    query = _compiled(text)
    try:
        return list(query.find(value).values())
    except (jsonpath_rfc9535.JSONPathError, RecursionError) as error:
        raise QueryFailed(f"{text} cannot be applied to this value: {error}") from error


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
        raise QueryFailed(f"{{{text}}} is not a placeholder; use a name or path such as {{$.a.b}}")
    return query
