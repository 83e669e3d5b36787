"""The end of a tool's output in a message: bounded, with a margin, nothing unprintable."""

from __future__ import annotations

import base64

_LINES = 20
_LINE_CHARACTERS = 400
#: Enough for all shown lines: longer output is cut before it is examined.
_CHARACTERS = _LINES * _LINE_CHARACTERS


def output_tail(text: str, encoding: str = "utf-8") -> list[str]:
    """The last lines, each with a margin: no line of the tool can pass for one of Actum."""
    if encoding == "base64":
        # A multiple of four characters from the end is decoded by itself.
        text = base64.b64decode(text[-_CHARACTERS:]).decode(errors="replace")
    lines = text[-_CHARACTERS:].rstrip().split("\n")
    return [f"  | {_printable(line)}" for line in lines[-_LINES:] if line.strip()]


def _printable(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) > _LINE_CHARACTERS:
        line = "…" + line[-_LINE_CHARACTERS:]
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in line
    )
