"""Transcripts: commands after `$ `, and what they print.

What differs from run to run is compared by its form: ids, digests, times, durations, numbers of
checks, runs of blanks. `…` stands for anything in a line; alone in a line, for any lines. An id in
a page is a name: where it is printed first it gets the id of this run, and later commands that
mention it, whole or shortened (`5ce6…`), use that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEX = "[0-9a-f]"
_ID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_SHORT = rf"{_HEX}{{4}}[0-9a-f-]*…"
_WRITTEN_ID = re.compile(rf"(?<![\w-])(?:{_ID}|{_SHORT})(?![\w-])")
_TOKEN = re.compile(
    "|".join(
        [
            rf"(?P<id>(?<![\w-])(?:{_ID}|{_SHORT})(?![\w-]))",
            r"(?P<digest>\b[0-9a-f]{64}\b)",
            r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z)",
            r"(?P<date>\b\d{4}-\d\d-\d\d\b)",
            r"(?P<duration>\b\d+ m?s\b)",
            r"(?P<checks>\b\d+(?= checks?\b))",
            r"(?P<any>…)",
            r"(?P<blank>\s+)",
        ]
    )
)
_FORMS = {
    "digest": "[0-9a-f]{64}",
    "time": r"\d{4}-\d\d-\d\dT[\d:.]+Z",
    "date": r"\d{4}-\d\d-\d\d",
    "duration": r"\d+ m?s",
    "checks": r"\d+",
    "any": ".*",
    "blank": r"\s+",
}


@dataclass(frozen=True)
class Step:
    line: int  #: offset in its block
    command: str
    expected: tuple[str, ...]


def steps_of(text: str) -> Iterator[Step]:
    """A command goes on in the next line after a backslash, in a line that begins with `> `, and
    until the end of a here-document."""
    lines = text.rstrip("\n").split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise AssertionError(
                f"line {at + 1}: a transcript begins with a command: {lines[at]!r}"
            )
        begun, command = at, lines[at][2:]
        at += 1
        while at < len(lines) and (command.endswith("\\") or lines[at].startswith("> ")):
            command += "\n" + lines[at].removeprefix("> ")
            at += 1
        here = re.search(r"<<-?\s*['\"]?([A-Za-z_]\w*)", command)
        while here and at < len(lines) and command.rsplit("\n", 1)[-1] != here[1]:
            command += "\n" + lines[at]
            at += 1
        expected = []
        while at < len(lines) and not lines[at].startswith("$ "):
            expected.append(lines[at])
            at += 1
        yield Step(begun, command, tuple(line for line in expected if line.strip()))


@dataclass
class Names:
    """Ids as the page writes them, and those of this run."""

    #: Folders and ports of the page.
    places: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def found(self, written: str) -> str | None:
        key = written.rstrip("…").rstrip("-")
        for known, real in self.ids.items():
            if known.startswith(key) or key.startswith(known):
                return real
        return None

    def bind(self, written: str, real: str) -> None:
        self.ids.setdefault(written.rstrip("…").rstrip("-"), real)

    def real(self, command: str) -> str:
        """The command with the ids and folders of this run."""
        for written, real in self.places.items():
            command = command.replace(written, real)
        return _WRITTEN_ID.sub(lambda found: self.found(found[0]) or found[0], command)

    def pattern(self, line: str) -> tuple[re.Pattern[str], list[str]]:
        """For a line of output, and the ids it would bind."""
        for written, real in self.places.items():
            line = line.replace(written, real)
        written_ids: list[str] = []
        parts, last = [], 0
        line = line.strip()
        for found in _TOKEN.finditer(line):
            parts.append(re.escape(line[last : found.start()]))
            last = found.end()
            if found.lastgroup != "id":
                parts.append(_FORMS[str(found.lastgroup)])
                continue
            known = self.found(found[0])
            if known is not None:
                parts.append(re.escape(known))
            else:
                written_ids.append(found[0])
                parts.append(rf"({_ID}|{_HEX}{{64}})" if found[0].endswith("…") else f"({_ID})")
        parts.append(re.escape(line[last:]))
        return re.compile("".join(parts)), written_ids

    def missing(self, expected: tuple[str, ...], printed: str) -> str | None:
        """The first expected line that was not printed, in order; binds the ids of the others."""
        lines = [line.strip() for line in printed.split("\n") if line.strip()]
        at = 0
        for line in expected:
            if line.strip() in ("…", "..."):
                continue
            pattern, written = self.pattern(line)
            while at < len(lines):
                found = pattern.fullmatch(lines[at])
                at += 1
                if found:
                    for name, real in zip(written, found.groups(), strict=True):
                        self.bind(name, real)
                    break
            else:
                return line
        return None
