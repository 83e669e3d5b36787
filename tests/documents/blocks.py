"""The fenced blocks of a page, in order, each with the comment that stands right before it.

The comments are invisible in the rendered page:

    <!-- not run: REASON -->    the block is an illustration, and this is why
    <!-- file: NAME -->         the block is the content of this file
    <!-- append: NAME -->       the block is appended to this file
    <!-- output -->             the block is what the block before it prints
    <!-- setup ... -->          a transcript that runs at this point and is not shown
    <!-- given ... -->          Python that runs before the next Python block and is not shown
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[\w-]*)[ \t]*$")
_REMARK = re.compile(
    r"<!--\s*(?P<word>not run|file|append|output|setup|given)\b:?(?P<rest>.*?)-->", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int  #: of its first line of text
    kind: str  #: `console`, `python`, `yaml`, `toml`, …; `setup`
    text: str
    remark: str = ""  #: the word of the comment before it
    rest: str = ""  #: and what the comment says further
    given: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_transcript(self) -> bool:
        untagged = not self.kind and re.search(r"^\$ ", self.text, re.MULTILINE)
        return self.kind in ("console", "setup") or bool(untagged)


def blocks_of(page: Path, name: str) -> Iterator[Block]:
    """Also raises for a comment that belongs to no block: it would be ignored in silence."""
    lines = page.read_text().split("\n")
    at, remark, given = 0, ("", ""), ""
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening:
            end = _end(lines, at, name)
            indent = len(opening["indent"])
            text = "\n".join(line[indent:] for line in lines[at + 1 : end]) + "\n"
            yield Block(name, at + 2, opening["kind"], text, *remark, given)
            at, remark, given = end + 1, ("", ""), ""
        elif lines[at].lstrip().startswith("<!--"):
            end = next(number for number in range(at, len(lines)) if "-->" in lines[number])
            found = _REMARK.match("\n".join(lines[at : end + 1]).strip())
            if found and found["word"] == "setup":
                yield Block(name, at + 2, "setup", found["rest"].strip("\n") + "\n")
            elif found and found["word"] == "given":
                given = found["rest"].strip("\n") + "\n"
            elif found:
                remark = (found["word"], found["rest"].strip())
            at = end + 1
        elif lines[at].strip() and (remark[0] or given):
            raise AssertionError(f"{name}:{at + 1}: the comment before this line is of no block")
        else:
            at += 1
    assert not (remark[0] or given), f"{name}: its last comment is of no block"


def _end(lines: list[str], at: int, name: str) -> int:
    for number in range(at + 1, len(lines)):
        if lines[number].strip() == "```":
            return number
    raise AssertionError(f"{name}:{at + 1}: the block has no end")
