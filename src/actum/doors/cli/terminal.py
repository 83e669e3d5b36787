"""Output of the command line: lines for people, or one JSON document for programs.

Names, paths, reasons and texts come from requests, tools and servers. Every character that is not
printable is escaped: no escape sequence, bidirectional control or line break of theirs reaches the
terminal. A stored file that goes elsewhere is exact, and the live output of a tool goes through
`screen_filter`. The only escape sequences are those of `Tone`, around text that is escaped already.

Proved by tests/acceptance/test_terminal_safety.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from enum import Enum

from actum.contract.model import Json


class Tone(Enum):
    """How a part of a line is shown on a terminal; the value is its SGR parameter."""

    HEAD = 1
    QUIET = 2
    BAD = 31
    GOOD = 32
    WAITING = 33


def document(value: Json) -> None:
    """The one document of `--json`."""
    # Exact and safe on any terminal: everything outside ASCII is escaped, and so is DEL.
    sys.stdout.write(json.dumps(value, indent=2).replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def json_line(value: Json) -> None:
    """One document of a sequence: a line of its own, passed on at once."""
    sys.stdout.write(json.dumps(value).replace("\x7f", "\\u007f") + "\n")
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


def flush() -> None:
    """Pass on what was printed, where more may take long to come."""
    sys.stdout.flush()


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


def width() -> int | None:
    """Columns of the terminal; ``None`` if stdout is not one, or is one that only has lines."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None
    import shutil  # not before: every execution imports this module

    return shutil.get_terminal_size().columns


def spans(parts: Iterable[tuple[str, Tone | None]]) -> None:
    """One line of parts, each in its tone. Without a terminal, or with NO_COLOR, plain text."""
    colours = width() is not None and not os.environ.get("NO_COLOR")
    written = ""
    for text, tone in parts:
        plain = one_line(text)
        written += f"\x1b[{tone.value}m{plain}\x1b[0m" if colours and tone and plain else plain
    sys.stdout.write(written.rstrip() + "\n")
