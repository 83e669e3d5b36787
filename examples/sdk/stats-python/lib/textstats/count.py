"""Functions that an sdk adapter maps: keyword arguments in, JSON out."""

from __future__ import annotations


def words(*, text: str) -> dict[str, int]:
    return {"words": len(text.split()), "characters": len(text)}


def longest(*, text: str) -> str:
    if not text.split():
        raise ValueError("the text has no word")
    return max(text.split(), key=len)
