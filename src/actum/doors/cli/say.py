"""How this door speaks: lines for people, or one JSON document for programs.

What a tool or a document says is shown with its control characters spelt out; only the live
output of a tool passes through as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from actum.contract.model import Json


def document(value: Json) -> None:
    """The one document of `--json`."""
    # Exact and safe on any terminal: everything outside ASCII is escaped.
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


def line(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")


def aside(text: str) -> None:
    """To stderr: what is not the answer itself."""
    sys.stderr.write(printable(text) + "\n")


def printable(text: str) -> str:
    """No escape sequence of somebody else's making reaches the terminal."""
    return "".join(
        letter
        if letter.isprintable() or letter == "\n"
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be; the last one is never padded."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(printable(row[column])) for row in lines) for column in range(len(heads))]
    for row in lines:
        cells = [printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
