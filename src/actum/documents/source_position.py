"""A plain document and its source positions, so that a `Problem` can point at its cause."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from actum.documents.json_value import Json
from actum.errors import Problem
from actum.value import field, value

#: Keys and indices from the root of a document to one of its values.
Path = tuple[str | int, ...]

#: Most problems reported. A document with more is not one with a few mistakes.
MOST_PROBLEMS = 100

#: Limits of one document.
DOCUMENT_BYTES = 1_048_576
DOCUMENT_DEPTH = 64
DOCUMENT_NODES = 100_000
SAFE_INTEGER = 2**53

_SHOWN = 80
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@value
class Document:
    """JSON data, and the source position of each part (line and column, from 1)."""

    value: Json
    positions: Mapping[Path, tuple[int, int]] = field(default_factory=dict)  #: of values
    keys: Mapping[Path, tuple[int, int]] = field(default_factory=dict)  #: of the keys themselves
    file: str = ""

    def problem(
        self, path: Path, message: str, *, value: str = "", permitted: str = "", key: bool = False
    ) -> Problem:
        """A problem at `path`; with `key`, the key is wrong, not its value."""
        line, column = (self.keys if key else self.positions).get(path, (0, 0))
        return Problem(
            field=dotted(path),
            message=message,
            value=value,
            permitted=permitted,
            file=self.file,
            line=line,
            column=column,
        )


def dotted(path: Path) -> str:
    """The path in the usual notation: ``sandbox.filesystem.read[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _BARE_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: Json) -> str:
    """The value as JSON, short enough for a message."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]  # a value may be a megabyte: encode only its start
    elif isinstance(value, (dict, list)) and len(value) > _SHOWN:
        return f"{'a mapping' if isinstance(value, dict) else 'a list'} of {len(value)} items"
    text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def in_reading_order(problems: list[Problem]) -> tuple[Problem, ...]:
    """Top to bottom, at most `MOST_PROBLEMS`."""
    ordered = sorted(problems, key=lambda one: (one.line, one.column, one.field))
    return tuple(ordered[:MOST_PROBLEMS])
