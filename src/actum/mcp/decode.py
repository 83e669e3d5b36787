"""Decodes the most common answer of a tool without the MCP library: texts, optionally structured.

The library accepts every result that this module accepts, and makes the same document of it (proved
by tests/unit/execution/test_decode.py). The library reads everything else: other content,
annotations, results that break the protocol. `output_schema` compares structure with its schema.
"""

from __future__ import annotations

import math
from typing import Any

from actum.contract.model import Json

_TEXT = {"type", "text"}
_RESULT = {"content", "structuredContent", "isError"}
_LEVELS = 32  #: nesting of a structure; the library reads deeper ones
_MODERN = {*_RESULT, "resultType"}


def decode_result(result: dict[str, Any], *, modern: bool) -> dict[str, Json] | None:
    """`result` as the library would decode it; ``None``: the library has to decode it.

    Results of `modern` protocols state `resultType: complete`; older ones have no such field.
    """
    content = result.get("content")
    if type(content) is not list or not result.keys() <= (_MODERN if modern else _RESULT):
        return None
    if modern and result.get("resultType") != "complete":
        return None
    texts: list[Json] = []
    for part in content:
        if type(part) is not dict or part.keys() != _TEXT or part["type"] != "text":
            return None
        text = part["text"]
        if type(text) is not str or not _is_unicode(text):
            return None
        texts.append({"type": "text", "text": text})
    document: dict[str, Json] = {"content": texts}
    if "structuredContent" in result:
        structure = result["structuredContent"]
        if type(structure) is not dict or not _is_json(structure):
            return None
        document["structuredContent"] = structure
    if "isError" in result:
        if type(result["isError"]) is not bool:
            return None
        document["isError"] = result["isError"]
    if modern:
        document["resultType"] = "complete"
    return document


def _is_json(found: Json, levels: int = _LEVELS) -> bool:
    """Whether every JSON parser reads the same value: numbers are finite, texts are Unicode."""
    if isinstance(found, str):
        return _is_unicode(found)
    if isinstance(found, (dict, list)):
        if isinstance(found, dict):
            if not all(map(_is_unicode, found)):
                return False
            found = list(found.values())
        return levels > 0 and all(_is_json(inner, levels - 1) for inner in found)
    return not isinstance(found, float) or math.isfinite(found)


def _is_unicode(text: str) -> bool:
    """False for a lone surrogate, which only Python accepts in a text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
