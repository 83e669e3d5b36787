"""Parsers of output: from text to a value. Strict, bounded, never guessing.

Output that cannot be read exactly as declared is an `OutputInvalid` with its position: the tool
ran, so the raw output is stored and the execution ends as OUTPUT_INVALID.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from functools import cache
from typing import NoReturn

from actum.contract.model import Json
from actum.errors import ActumError, ContractInvalid


class OutputInvalid(ActumError):
    """The tool's output is not what its adapter declares."""

    code = "OUTPUT_INVALID"


def parse_text(spec: str, text: str, where: str = "stdout") -> Json:
    """Parse `text` as format `spec`; `where` names it in messages."""
    return _PARSERS[spec](text, where)


def decode(content: bytes, where: str = "stdout") -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise OutputInvalid(f"{where} is not UTF-8 at byte offset {error.start}.") from error


def _json(text: str, where: str) -> Json:
    return _strict_json(text, where)


def _json_lines(text: str, where: str) -> Json:
    # Not splitlines(): U+2028 and similar are ordinary characters inside a JSON string.
    return [
        _strict_json(line, f"{where} line {number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def _strict_json(text: str, where: str) -> Json:
    try:
        return _decoder().decode(text)
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"{where} is not JSON: {error}.") from error


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_without_duplicates, parse_constant=_no_constant, parse_float=_finite
    )


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond the range of a double")
    return number


def _csv(text: str, where: str) -> Json:
    """One object per row, keyed by the first row."""
    import csv

    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, [])
        if len(set(header)) != len(header):
            raise OutputInvalid(f"{where} line 1: a column name occurs twice.")
        found: list[dict[str, str]] = []
        for row in rows:
            if len(row) != len(header):
                raise OutputInvalid(
                    f"{where} line {rows.line_num} has {len(row)} fields, "
                    f"the header has {len(header)}."
                )
            found.append(dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise OutputInvalid(f"{where} line {rows.line_num} is not CSV: {error}.") from error
    return found


def _yaml(text: str, where: str) -> Json:
    from actum.documents.document import load_document

    try:
        return load_document(text, file=where).value
    except ContractInvalid as error:
        raise OutputInvalid(f"{where} is not one YAML document: {error.problems[0]}") from error


def _lines(text: str, _where: str) -> Json:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _text(text: str, _where: str) -> Json:
    return text


_PARSERS: dict[str, Callable[[str, str], Json]] = {
    "json": _json,
    "json_lines": _json_lines,
    "csv": _csv,
    "yaml": _yaml,
    "lines": _lines,
    "text": _text,
}
