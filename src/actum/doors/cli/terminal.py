"""Output of the command line: lines for people, or one JSON document for programs.

Names, paths, reasons and texts come from requests, tools and servers. Every character that is not
printable is escaped: no escape sequence, bidirectional control or line break of theirs reaches the
terminal. Only the live output of a tool passes unchanged, and a stored file that goes elsewhere.

Proved by tests/acceptance/test_terminal_safety.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from actum.contract.model import Json


def document(value: Json) -> None:
    """The one document of `--json`."""
    # Exact and safe on any terminal: everything outside ASCII is escaped, and so is DEL.
    sys.stdout.write(json.dumps(value, indent=2).replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def readable(value: Json) -> None:
    """A JSON document for people, with letters of all alphabets unescaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write(
        "".join(
            letter if letter.isprintable() or letter == "\n" else _escaped(letter)
            for letter in text
        )
        + "\n"
    )


def _escaped(letter: str) -> str:
    # JSON does not escape DEL.
    return "\\u007f" if letter == "\x7f" else json.dumps(letter)[1:-1]


def line(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")


def aside(text: str) -> None:
    """Print a message to stderr that is not part of the answer."""
    sys.stderr.write(printable(text) + "\n")


def block(text: str) -> None:
    """Print several lines with trusted line breaks: a key, a checkpoint, YAML of Actum."""
    for each in text.split("\n"):
        line(each)


def content(stored: bytes) -> None:
    """Write the bytes of a stored file, which a tool chose: unchanged, except to a terminal."""
    if sys.stdout.isatty():
        block(stored.decode("utf-8", "replace"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(stored)


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def one_line(text: str) -> str:
    """The same with line ends escaped: no text can imitate a line of Actum."""
    return printable(text).replace("\n", "\\n")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be; the last one is never padded."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(one_line(row[column])) for row in lines) for column in range(len(heads))]
    for row in lines:
        cells = [one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
