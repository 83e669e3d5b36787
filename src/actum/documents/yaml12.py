"""Reads YAML text under YAML 1.2's core schema, and nothing more.

`NO`, `on` and `12:30:45` are text. Refused: duplicate keys, keys that are not text, aliases (so
there is nothing to expand), tags beyond the core schema, several documents, numbers without an
exact JSON form, too much text, too deep a nesting. JSON is read by the same code.

The reader uses parser events, never composed nodes: the C library's composer recurses without a
bound and expands aliases; events do neither.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

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
    shown,
)
from actum.errors import ContractInvalid, Problem

_CORE = "tag:yaml.org,2002:"
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NOT_PRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The C library reads YAML 1.1, where these characters break and fold lines. In 1.2 they do not.
_OLD_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_ONLY_IN_JSON = re.compile(
    r"(?P<escaped>\\\\)|\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    "|(?P<raw>[\x7f-\x9f\u2028\u2029])"
)


def load_document(text: str | bytes, *, file: str = "") -> Document:
    """Read one document; raises `ContractInvalid` with every problem found."""
    decoded = _decoded(text, file)
    decoded = _json_as_yaml(decoded.removeprefix("\ufeff"))
    unreadable = [
        _at(file, decoded, match.start(), f"the character U+{ord(match[0]):04X} {why}")
        for pattern, why in (
            (_NOT_PRINTABLE, "is not allowed in YAML; write it as an escape in double quotes."),
            (_OLD_LINE_BREAK, "is read differently by YAML 1.1 and 1.2; write it as an escape."),
        )
        for match in _first(pattern, decoded)
    ]
    if unreadable:
        raise ContractInvalid(in_reading_order(unreadable))
    return _Reading(decoded, file).document()


def _decoded(text: str | bytes, file: str) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > DOCUMENT_BYTES:
        message = f"the document has {size} bytes."
        permitted = f"at most {DOCUMENT_BYTES} bytes"
        raise ContractInvalid((Problem(field="", message=message, permitted=permitted, file=file),))
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start].decode()
        problem = _at(file, before, len(before), "the text is not UTF-8; save it as UTF-8.")
        raise ContractInvalid((problem,)) from error


def _json_as_yaml(text: str) -> str:
    """Escape what JSON allows in strings and the YAML parser does not, in a form both read."""
    if not text.lstrip().startswith(("{", "[")) or not _ONLY_IN_JSON.search(text):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text  # not JSON: the YAML rules apply and report the problem

    def rewritten(match: re.Match[str]) -> str:
        if match["escaped"]:
            return match[0]
        if match["raw"]:
            return f"\\u{ord(match['raw']):04x}"
        high, low = int(match["high"], 16), int(match["low"], 16)
        return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"

    return _ONLY_IN_JSON.sub(rewritten, text)


def _first(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return list(itertools.islice(pattern.finditer(text), MOST_PROBLEMS))


def _at(file: str, text: str, offset: int, message: str) -> Problem:
    line_start = text.rfind("\n", 0, offset) + 1
    line = text.count("\n", 0, offset) + 1
    return Problem(field="", message=message, file=file, line=line, column=offset - line_start + 1)


class _Reading:
    """One pass over the events of one text."""

    def __init__(self, text: str, file: str) -> None:
        import yaml

        self._yaml = yaml
        self._parser = yaml.CSafeLoader(text)
        self._file = file
        self._positions: dict[Path, tuple[int, int]] = {}
        self._keys: dict[Path, tuple[int, int]] = {}
        self._problems: list[Problem] = []

    def document(self) -> Document:
        value: Json = None
        try:
            value = self._only_document()
        except self._yaml.MarkedYAMLError as error:
            problem, mark = error.problem, error.problem_mark or error.context_mark
            self._report(mark, (), f"this is not YAML: {problem}.")
        finally:
            self._parser.dispose()
        if self._problems:
            raise ContractInvalid(in_reading_order(self._problems))
        return Document(value=value, positions=self._positions, keys=self._keys, file=self._file)

    def _only_document(self) -> Json:
        self._next()  # stream start
        start = self._next()
        if isinstance(start, self._yaml.StreamEndEvent):
            self._report(start.start_mark, (), "the document is empty.")
            return None
        if start.version not in (None, (1, 2)):
            self._report(start.start_mark, (), "only YAML 1.2 is read; remove the %YAML line.")
        value = self._value(self._next(), (), 0)
        self._next()  # document end
        after = self._next()
        if not isinstance(after, self._yaml.StreamEndEvent):
            self._report(after.start_mark, (), "a second document begins; write one per file.")
        return value

    def _next(self) -> Any:
        return self._parser.get_event()

    def _value(self, event: Any, path: Path, depth: int) -> Json:
        mark = event.start_mark
        self._positions[path] = (mark.line + 1, mark.column + 1)
        if len(self._positions) > DOCUMENT_NODES:
            self._give_up(mark, path, f"more than {DOCUMENT_NODES} values in one document.")
        if isinstance(event, self._yaml.AliasEvent):
            self._report(mark, path, f"the alias *{event.anchor} is refused; write the value out.")
            return None
        if isinstance(event, self._yaml.ScalarEvent):
            return self._scalar(event, path)
        if depth == DOCUMENT_DEPTH:
            self._give_up(mark, path, f"nested deeper than {DOCUMENT_DEPTH} levels.")
        if isinstance(event, self._yaml.SequenceStartEvent):
            self._collection_tag(event, "seq", path)
            return self._sequence(path, depth)
        self._collection_tag(event, "map", path)
        return self._mapping(path, depth)

    def _sequence(self, path: Path, depth: int) -> list[Json]:
        items: list[Json] = []
        while not isinstance(event := self._next(), self._yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, Json]:
        items: dict[str, Json] = {}
        while not isinstance(event := self._next(), self._yaml.MappingEndEvent):
            mark = event.start_mark
            key = self._key(event, path, depth)
            if key is None:
                self._value(self._next(), path, depth + 1)
                continue
            under = (*path, key)
            if key in items:
                first = self._keys[under][0]
                message = f"the key {shown(key)} was given before, on line {first}; keep one."
                self._report(mark, under, message)
            self._keys.setdefault(under, (mark.line + 1, mark.column + 1))
            items[key] = self._value(self._next(), under, depth + 1)
        return items

    def _key(self, event: Any, path: Path, depth: int) -> str | None:
        if isinstance(event, self._yaml.ScalarEvent):
            key = self._scalar(event, path)
            if isinstance(key, str):
                return key
            what = f"the key {shown(event.value)}"
        else:
            self._value(event, path, depth + 1)
            what = "this key"
        self._report(event.start_mark, path, f"{what} is not text; write it in quotes.")
        return None

    def _scalar(self, event: Any, path: Path) -> Json:
        text: str = event.value
        tag: str | None = event.tag
        quoted = not event.implicit[0] and tag is None
        if quoted or tag in ("!", _CORE + "str"):
            return text
        kind, value = _resolved(text)
        if kind == "unsafe":
            message = f"{shown(text)} has no exact JSON form; write it as text, in quotes."
            self._report(event.start_mark, path, message)
        elif tag is not None and tag != _CORE + kind:
            message = f"the tag {shown(tag)} is refused here; remove it."
            self._report(event.start_mark, path, message)
        return value

    def _collection_tag(self, event: Any, kind: str, path: Path) -> None:
        if event.tag not in (None, "!", _CORE + kind):
            message = f"the tag {shown(event.tag)} is refused here; remove it."
            self._report(event.start_mark, path, message)

    def _report(self, mark: Any, path: Path, message: str) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        self._problems.append(
            Problem(field=dotted(path), message=message, file=self._file, line=line, column=column)
        )
        if len(self._problems) >= MOST_PROBLEMS:
            raise ContractInvalid(in_reading_order(self._problems))

    def _give_up(self, mark: Any, path: Path, message: str) -> None:
        self._report(mark, path[:4], message)
        raise ContractInvalid(in_reading_order(self._problems))


def _resolved(text: str) -> tuple[str, Json]:
    """Resolve a plain scalar by the core schema: its kind and its value."""
    if text in _NULLS:
        return "null", None
    if text in _BOOLS:
        return "bool", _BOOLS[text]
    for pattern, base in ((_DECIMAL, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            if len(text) > 64:  # also prevents quadratic work in int()
                return "unsafe", None
            number = int(text, base)
            return ("int", number) if abs(number) < SAFE_INTEGER else ("unsafe", None)
    if _NOT_FINITE.fullmatch(text):
        return "unsafe", None
    if _FLOAT.fullmatch(text):
        fraction = float(text)
        return ("float", fraction) if math.isfinite(fraction) else ("unsafe", None)
    return "str", text
