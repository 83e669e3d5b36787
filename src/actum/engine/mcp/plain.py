"""The commonest answer of a tool, read without the MCP library: texts, perhaps with structure.

What is accepted here the library accepts, and makes the same document of it (proved by
tests/unit/engine/test_mcp_plain.py); everything else is left to it: other content, annotations,
results that break the protocol. Whether the structure is the promised one is not judged here.
"""

from __future__ import annotations

import math
from typing import Any

from actum.contract.model import Json

_TEXT = {"type", "text"}
_RESULT = {"content", "structuredContent", "isError"}
_LEVELS = 32  #: of a structure; one that is deeper the library may read
_MODERN = {*_RESULT, "resultType"}


def read_plainly(result: dict[str, Any], *, modern: bool) -> dict[str, Json] | None:
    """`result` as the library would tell it; ``None``: ask the library.

    `modern` protocols have every result say that it is complete; the others know no such word.
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
    """Whether every reader of JSON would find the same: numbers are finite, texts are Unicode."""
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
    """Half a pair of surrogates is a text to Python and to nobody else."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
