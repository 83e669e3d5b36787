"""The commonest answer of a tool, read without the MCP library: texts, and nothing else.

What is accepted here the library accepts, and makes the same document of it (proved by
tests/unit/engine/test_mcp_plain.py); everything else is left to it: other content, annotations,
structured content, results that break the protocol.
"""

from __future__ import annotations

from typing import Any

from actum.contract.model import Json

_TEXT = {"type", "text"}
_RESULT = {"content", "isError"}
_MODERN = {*_RESULT, "resultType"}


def only_texts(result: dict[str, Any], *, modern: bool) -> dict[str, Json] | None:
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
    if "isError" in result:
        if type(result["isError"]) is not bool:
            return None
        document["isError"] = result["isError"]
    if modern:
        document["resultType"] = "complete"
    return document


def _is_unicode(text: str) -> bool:
    """Half a pair of surrogates is a text to Python and to nobody else."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
