"""The manifest of a snapshot: every name of a tree as canonical bytes, whose SHA-256 is its name.

    actum-snapshot 1
    d 755 .
    f 644 5 2cf24dba…9824 README.md
    d 755 src
    l ../README.md src/notes

One line per name, sorted by the bytes of the path, parents first. Paths and targets are
percent-encoded, so a line holds exactly the bytes of a name, in any encoding. A file larger than
`PART_BYTES` lists the digest of the whole file and then one digest for each part. Times, owners,
holes, hard links and the bits above 0777 are no part of a snapshot: two machines with the same tree
write the same bytes.

`parse` accepts only what `of` writes: it renders each line again and compares. Nothing here
accesses a disk. Proved by tests/unit/runs/transport/test_snapshot_manifest.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from actum.errors import Refused
from actum.removal import MARKER
from actum.value import field, value
from actum.workspace.files import LONGEST_PATH
from actum.workspace.tree import PERMISSIONS, Kind, name_of, parent_of, shown

_FIRST = b"actum-snapshot 1"
_TOP = b"."
PART_BYTES = 8 << 20  #: part of the format: another size gives other manifests
DIGEST_BYTES = 32
_LONGEST_NAME = 255
#: Names directly below the top that no snapshot holds: git's own records and the project's state,
#: as in the state of a work item; and the mark that permits the removal of a folder.
LEFT_OUT = frozenset({b".git", b".actum"})
_RESERVED = LEFT_OUT | {MARKER.encode()}
NAME = re.compile(r"[0-9a-f]{64}")


@value
class SnapshotBounds:
    """The largest snapshot that is saved, read or restored."""

    entries: int = 250_000
    content_bytes: int = 64 << 30  #: of all files together
    manifest_bytes: int = 256 << 20


class Content(NamedTuple):
    """One piece of a file: a whole file, or one part of a large one."""

    digest: bytes
    offset: int
    size: int


class Listed(NamedTuple):
    """One name of a snapshot."""

    kind: Kind
    mode: int = 0
    size: int = 0
    digest: bytes = b""  #: SHA-256 of a whole file
    parts: tuple[bytes, ...] = ()  #: SHA-256 of each part of a file larger than `PART_BYTES`
    target: bytes = b""  #: of a link

    def contents(self) -> Iterator[Content]:
        """What has to be stored for this name. Nothing has to be for an empty file."""
        if not self.parts:
            if self.size:
                yield Content(self.digest, 0, self.size)
            return
        for number, digest in enumerate(self.parts):
            offset = number * PART_BYTES
            yield Content(digest, offset, min(PART_BYTES, self.size - offset))


@value(kw_only=False)
class Manifest:
    """A tree. Entries are sorted by path; the path of its top is empty."""

    entries: Mapping[bytes, Listed] = field(repr=False, compare=False)
    content: bytes = field(repr=False)

    @property
    def name(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def file_bytes(self) -> int:
        return sum(listed.size for listed in self.entries.values())

    @property
    def lines(self) -> dict[bytes, bytes]:
        """Each line by its path."""
        return dict(zip(self.entries, self.content.split(b"\n")[1:-1], strict=True))


def of(entries: Mapping[bytes, Listed], bounds: SnapshotBounds) -> Manifest:
    """The manifest of a tree. Raises `Refused` for one that no snapshot can hold."""
    ordered = dict(sorted(entries.items()))
    _require_sound(ordered, bounds)
    return Manifest(ordered, joined_lines(line_of(path, each) for path, each in ordered.items()))


def joined_lines(lines: Iterator[bytes]) -> bytes:
    return b"\n".join((_FIRST, *lines, b""))


def parse(content: bytes, bounds: SnapshotBounds) -> Manifest:
    """Read a manifest that may be hostile. Raises `Refused` unless `of` would write the same."""
    if len(content) > bounds.manifest_bytes:
        raise too_large(f"its manifest is larger than {bounds.manifest_bytes} bytes")
    first, *lines = content.split(b"\n")
    if first != _FIRST:
        raise invalid(f"its first line is not {_FIRST.decode()!r}")
    if not lines or lines.pop() != b"":
        raise invalid("its last line is cut short")
    if len(lines) > bounds.entries:
        raise too_large(f"it has more than {bounds.entries} names")
    entries: dict[bytes, Listed] = {}
    former = None
    for number, line in enumerate(lines, start=2):
        try:
            path, listed = _read(line)
        except ValueError:
            raise invalid(f"line {number} is not one of a manifest") from None
        if line_of(path, listed) != line:
            raise invalid(f"line {number} is not in canonical form")
        if former is not None and path <= former:
            raise invalid(f"line {number} is not in order, or names a path again")
        entries[path] = listed
        former = path
    _require_sound(entries, bounds)
    return Manifest(entries, content)


def line_of(path: bytes, listed: Listed) -> bytes:
    where = _quoted(path) if path else _TOP
    if listed.kind is Kind.FOLDER:
        return b"d %o %b" % (listed.mode, where)
    if listed.kind is Kind.LINK:
        return b"l %b %b" % (_quoted(listed.target), where)
    digests = b",".join(digest.hex().encode() for digest in (listed.digest, *listed.parts))
    return b"f %o %d %b %b" % (listed.mode, listed.size, digests, where)


def path_in(line: bytes) -> bytes:
    """The path of a line."""
    where = line.rpartition(b" ")[2]
    return b"" if where == _TOP else unquote_to_bytes(where)


def _quoted(path: bytes) -> bytes:
    return quote_from_bytes(path).encode()


def _read(line: bytes) -> tuple[bytes, Listed]:
    kind, *fields = line.split(b" ")
    path = path_in(line)
    match kind, fields:
        case b"d", [mode, _]:
            return path, Listed(Kind.FOLDER, int(mode, 8))
        case b"l", [target, _]:
            return path, Listed(Kind.LINK, target=unquote_to_bytes(target))
        case b"f", [mode, size, digests, _]:
            digest, *parts = (bytes.fromhex(each.decode()) for each in digests.split(b","))
            return path, Listed(Kind.FILE, int(mode, 8), int(size), digest, tuple(parts))
        case _:
            raise ValueError(line)


def _require_sound(entries: Mapping[bytes, Listed], bounds: SnapshotBounds) -> None:
    if len(entries) > bounds.entries:
        raise too_large(f"it has more than {bounds.entries} names")
    top = entries.get(b"")
    if top is None or top.kind is not Kind.FOLDER:
        raise invalid("its top is not a folder")
    left = bounds.content_bytes
    for path, listed in entries.items():
        if path:
            _require_place(path, entries)
        if listed.mode & ~PERMISSIONS:
            raise invalid(f"{shown(path)} has bits beyond {PERMISSIONS:o}")
        if listed.kind is Kind.FILE:
            _require_digests(path, listed)
            left -= listed.size
        elif listed.kind is Kind.LINK and (
            not listed.target or len(listed.target) > LONGEST_PATH or b"\0" in listed.target
        ):
            raise invalid(f"the link {shown(path)} has a target that no link can have")
    if left < 0:
        raise too_large(f"its files have more than {bounds.content_bytes} bytes")


def _require_place(path: bytes, entries: Mapping[bytes, Listed]) -> None:
    name = name_of(path)
    # An empty name includes a slash at the beginning, at the end, or beside another one. Each
    # parent is an entry too, so its name was checked as well.
    if name in (b"", b".", b"..") or b"\0" in path or path.startswith(b"/"):
        raise invalid(f"{shown(path[:120])} is not a path below the top")
    if len(name) > _LONGEST_NAME or len(path) > LONGEST_PATH:
        raise invalid(f"{shown(path[:120])}… is longer than Linux permits")
    if path in _RESERVED:
        raise invalid(f"{shown(path)} is a name that no snapshot holds")
    parent = entries.get(parent_of(path))
    if parent is None or parent.kind is not Kind.FOLDER:
        raise invalid(f"{shown(path)} is not in a folder of the snapshot")


def _require_digests(path: bytes, listed: Listed) -> None:
    parts = -(-listed.size // PART_BYTES) if listed.size > PART_BYTES else 0
    digests = (listed.digest, *listed.parts)
    if listed.size < 0 or len(listed.parts) != parts or set(map(len, digests)) != {DIGEST_BYTES}:
        raise invalid(f"the size and the digests of {shown(path)} do not fit")
    if listed.size == 0 and listed.digest != EMPTY:
        raise invalid(f"the digest of {shown(path)} is not that of an empty file")


EMPTY = hashlib.sha256(b"").digest()


def require_name(name: str) -> str:
    """A snapshot's name, which may come from an edited document or a command line."""
    if not NAME.fullmatch(name):
        raise Refused(
            "SNAPSHOT_UNKNOWN",
            f"{name[:80]!r} is not the name of a snapshot.",
            remedy="A name has 64 hex digits; `actum snapshot save` prints it.",
        )
    return name


def differing(one: Manifest, other: Manifest) -> Iterator[bytes]:
    """The paths at which two trees differ, in order."""
    for path in sorted(one.entries.keys() | other.entries.keys()):
        if one.entries.get(path) != other.entries.get(path):
            yield path


def invalid(what: str) -> Refused:
    return Refused(
        "SNAPSHOT_INVALID",
        f"This is not a snapshot that Actum makes or restores: {what}.",
        remedy="Rename or remove that path, if it is in your own folder. Another program made a"
        " stored snapshot of which this is said: save it again from its source.",
    )


def too_large(what: str) -> Refused:
    return Refused(
        "SNAPSHOT_TOO_LARGE",
        f"The snapshot is too large: {what}.",
        remedy="docs/fleet.md lists the bounds. Remove what the runs do not need.",
    )
