"""Documents as plain JSON data: read from text or memory, checked against a schema.

Contracts, tools and adapters are all read here. Nothing is coerced, defaulted or clamped: a
document that does not mean exactly one thing is refused, with every problem named at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from actum.documents.json_schema import check
from actum.documents.json_value import Json
from actum.documents.source_position import (
    DOCUMENT_BYTES,
    DOCUMENT_DEPTH,
    DOCUMENT_NODES,
    MOST_PROBLEMS,
    SAFE_INTEGER,
    Document,
    Path,
    dotted,
    in_reading_order,
)
from actum.errors import ContractInvalid, Problem

__all__ = [
    "DOCUMENT_BYTES",
    "DOCUMENT_DEPTH",
    "Document",
    "Source",
    "check",
    "document_from",
    "document_of",
    "load_document",
]


def load_document(text: str | bytes, *, file: str = "") -> Document:
    """Read one document of YAML or JSON; raises `ContractInvalid` with every problem found."""
    from actum.documents import yaml12

    return yaml12.load_document(text, file=file)


#: A document in any form: text, data in memory, or the path of a file.
Source = str | bytes | Mapping[str, Any] | FilePath


def document_from(source: Source, *, file: str = "") -> Document:
    """The document that `source` holds; raises `ContractInvalid` with every problem found."""
    if isinstance(source, Mapping):
        return document_of(source)
    if isinstance(source, FilePath):
        file = file or str(source)
        try:
            with source.open("rb") as opened:
                source = opened.read(DOCUMENT_BYTES + 1)
        except OSError as error:
            message = f"cannot be read: {error.strerror}. Check the path."
            problem = Problem(field="", message=message, value=file, file=file)
            raise ContractInvalid((problem,)) from error
    return load_document(source, file=file)


def document_of(value: Mapping[str, Any]) -> Document:
    """A private copy of in-memory data; raises `ContractInvalid` for data that is not JSON."""
    copying = _Copying()
    copied = copying.copy(value, (), 0)
    if copying.problems:
        raise ContractInvalid(in_reading_order(copying.problems))
    return Document(value=copied)


class _Copying:
    """Counts values and depth: data in memory may contain itself."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._nodes = 0

    def copy(self, value: Any, path: Path, depth: int) -> Json:
        self._nodes += 1
        if depth == DOCUMENT_DEPTH and isinstance(value, (list, tuple, Mapping)):
            self._give_up(path, f"nested deeper than {DOCUMENT_DEPTH} levels.")
        if self._nodes > DOCUMENT_NODES:
            self._give_up(path, f"more than {DOCUMENT_NODES} values in one document.")
        if isinstance(value, str):
            return self._text(str.__str__(value), path)
        if value is None or type(value) is bool:
            return value
        if type(value) is int:
            if abs(value) >= SAFE_INTEGER:
                self._report(path, "an integer of 2^53 or beyond; write it as text.")
                return None
            return value
        if type(value) is float:
            if not math.isfinite(value):
                self._report(path, f"{value} is not a JSON number.")
            return value
        if isinstance(value, (list, tuple)):
            return [self.copy(item, (*path, index), depth + 1) for index, item in enumerate(value)]
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth)
        self._report(path, f"{type(value).__name__} has no JSON form.{_remedy(value)}")
        return None

    def _mapping(self, value: Mapping[Any, Any], path: Path, depth: int) -> dict[str, Json]:
        copied: dict[str, Json] = {}
        for key, item in value.items():
            if isinstance(key, str):
                name = self._text(str.__str__(key), path)
                copied[name] = self.copy(item, (*path, name), depth + 1)
            else:
                self._report(path, f"a key of type {type(key).__name__} is not text.")
        return copied

    def _text(self, text: str, path: Path) -> str:
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                self._report(path, "a lone surrogate is not text.")
                return ""
        return text

    def _report(self, path: Path, message: str) -> None:
        self.problems.append(Problem(field=dotted(path), message=message))
        if len(self.problems) >= MOST_PROBLEMS:
            raise ContractInvalid(in_reading_order(self.problems))

    def _give_up(self, path: Path, message: str) -> None:
        self._report(path[:4], message)
        raise ContractInvalid(in_reading_order(self.problems))


def _remedy(value: Any) -> str:
    return " Bytes for stdin are written {base64: …}." if isinstance(value, bytes) else ""
