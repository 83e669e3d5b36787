"""The record of a snapshot: its manifest, and the packs that hold its small contents.

    actum-record 1
    base 5d41…             only if the manifest is written as changes to another one
    pack 9b71… 1453 52840  name, bytes of the header, bytes of the whole
    manifest | changes
    the manifest | `- PATH` and `+ LINE` for each path that differs
    sum 1c20…              SHA-256 of all bytes before this line

A snapshot that differs little from its base costs a record of that size: 10,000 names are 1 MB of
manifest. Either form proves itself, because the manifest that comes out has the SHA-256 that is the
snapshot's name. Which packs are named is no part of a snapshot: each content has its own digest.
A chain of bases has a bounded length.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from actum.errors import Refused
from actum.runs.transport import content_pack, snapshot_manifest
from actum.runs.transport.content_pack import MOST_HEADER_BYTES, SMALL_BYTES, Pack
from actum.runs.transport.object_store import Found, ObjectStore, each
from actum.runs.transport.snapshot_manifest import (
    NAME,
    Manifest,
    SnapshotBounds,
    invalid,
    require_name,
)
from actum.value import value

_FIRST = b"actum-record 1"
MOST_BASES = 16  #: in one chain
#: A snapshot of the largest number of names has no more, if its contents are packed once.
_MOST_PACKS = 8_192
_PACK = re.compile(rb"pack ([0-9a-f]{64}) ([1-9][0-9]{0,6}) ([1-9][0-9]{0,8})")
#: Of a record, beside its manifest.
_OWN_BYTES = 1 << 20
RECORDS = "snapshots/"


@value(kw_only=False)
class PackRef:
    """A pack as a record names it."""

    name: str
    header_bytes: int
    size: int

    @property
    def key(self) -> str:
        return pack_key(self.name)


@value
class Record:
    """One record, read and well-formed."""

    base: str  #: empty if it has a whole manifest
    packs: tuple[PackRef, ...]
    payload: bytes


@value
class Stored:
    """A snapshot in a store, with its manifest read and compared with its name."""

    name: str
    manifest: Manifest
    packs: tuple[PackRef, ...]
    bases: tuple[str, ...]  #: the chain, nearest first
    found: Found
    content: bytes  #: of the record


def record_key(name: str) -> str:
    return f"{RECORDS}{name[:2]}/{name}"


def pack_key(name: str) -> str:
    return f"packs/{name[:2]}/{name}"


def content_key(digest: bytes) -> str:
    text = digest.hex()
    return f"contents/{text[:2]}/{text}"


def objects_of(stored: Stored) -> dict[str, int]:
    """What a snapshot needs beside its records: the size of each object by its key."""
    large = {
        content_key(content.digest): content.size
        for listed in stored.manifest.entries.values()
        for content in listed.contents()
        if content.size >= SMALL_BYTES
    }
    return large | {ref.key: ref.size for ref in stored.packs}


def load(
    objects: ObjectStore, name: str, bounds: SnapshotBounds, *, found: Found | None = None
) -> Stored:
    """Read a snapshot's record and those of its bases. Raises `Refused` if there is none."""
    found = found or objects.find(record_key(require_name(name)))
    if found is None:
        raise Refused(
            "SNAPSHOT_UNKNOWN",
            f"{objects.url} holds no snapshot {name}.",
            remedy="Check the name and the store. A snapshot that nothing refers to is removed by"
            " `actum snapshot gc`.",
        )
    content = _record_bytes(objects, name, bounds)
    records = [read(content)]
    bases: list[str] = []
    while records[-1].base:
        base = records[-1].base
        if len(bases) == MOST_BASES or base in (name, *bases):
            raise invalid("its chain of bases has no end")
        bases.append(base)
        records.append(read(_record_bytes(objects, base, bounds)))
    manifest = _rebuilt(records, bounds)
    if hashlib.sha256(manifest).hexdigest() != name:
        raise invalid(f"the manifest that its record describes is not that of {name}")
    return Stored(
        name=name,
        manifest=snapshot_manifest.parse(manifest, bounds),
        packs=records[0].packs,
        bases=tuple(bases),
        found=found,
        content=content,
    )


def _record_bytes(objects: ObjectStore, name: str, bounds: SnapshotBounds) -> bytes:
    most = bounds.manifest_bytes + _OWN_BYTES
    return objects.get(record_key(name), most, is_whole)


def is_whole(content: bytes) -> bool:
    """Whether no byte of a record was lost or changed on the way: its last line is a checksum. That
    the record is the one of its name shows in the manifest that it describes."""
    body, _, last = content.rpartition(b"sum ")
    return last == hashlib.sha256(body).hexdigest().encode() + b"\n"


def _rebuilt(records: list[Record], bounds: SnapshotBounds) -> bytes:
    """The manifest that a chain describes, nearest record first."""
    last = records[-1].payload
    if len(records) == 1:
        return last
    lines = {snapshot_manifest.path_in(line): line for line in last.split(b"\n")[1:-1]}
    for record in reversed(records[:-1]):
        for change in record.payload.split(b"\n")[:-1]:
            sign, line = change[:2], change[2:]
            if sign == b"+ ":
                lines[snapshot_manifest.path_in(line)] = line
            elif sign == b"- ":
                lines.pop(snapshot_manifest.path_in(line), None)
            else:
                raise invalid("its record has a line that is no change")
        if len(lines) > bounds.entries:
            raise snapshot_manifest.too_large(f"it has more than {bounds.entries} names")
    return snapshot_manifest.joined_lines(lines[path] for path in sorted(lines))


def read(content: bytes) -> Record:
    """Read a record that may be hostile."""
    lines = iter(content.rpartition(b"sum ")[0].split(b"\n"))
    if next(lines, b"") != _FIRST:
        raise invalid(f"the first line of its record is not {_FIRST.decode()!r}")
    base = ""
    packs: list[PackRef] = []
    for line in lines:
        if line in (b"manifest", b"changes"):
            if (line == b"changes") != bool(base):
                raise invalid("its record has changes without a base, or a base without changes")
            return Record(base=base, packs=tuple(packs), payload=b"\n".join(lines))
        if line.startswith(b"base ") and not base and not packs:
            base = line[5:].decode("ascii", "replace")
            if not NAME.fullmatch(base):
                raise invalid("its record names a base that is no snapshot")
        elif (match := _PACK.fullmatch(line)) and len(packs) < _MOST_PACKS:
            header_bytes, size = int(match[2]), int(match[3])
            if not header_bytes < size or header_bytes > MOST_HEADER_BYTES:
                raise invalid("its record names a pack of a size that no pack has")
            packs.append(PackRef(match[1].decode(), header_bytes, size))
        else:
            raise invalid("its record has a line that belongs to none")
    raise invalid("its record has no manifest")


def whole_record(manifest: Manifest, packs: Iterable[PackRef]) -> bytes:
    return _record((), packs, b"manifest", manifest.content)


def changed_record(base: Stored, manifest: Manifest, packs: Iterable[PackRef]) -> bytes:
    """The record of a snapshot, as changes to its base."""
    before, after = base.manifest.lines, manifest.lines
    changes = []
    for path in sorted(before.keys() | after.keys()):
        was, is_ = before.get(path), after.get(path)
        if is_ is None and was is not None:
            changes.append(b"- " + was.rpartition(b" ")[2] + b"\n")
        elif is_ is not None and is_ != was:
            changes.append(b"+ " + is_ + b"\n")
    head = [f"base {base.name}".encode()]
    return _record(head, packs, b"changes", b"".join(changes))


def _record(head: Iterable[bytes], packs: Iterable[PackRef], form: bytes, payload: bytes) -> bytes:
    named = [f"pack {each.name} {each.header_bytes} {each.size}".encode() for each in packs]
    body = b"\n".join((_FIRST, *head, *named, form, payload))
    return body + b"sum " + hashlib.sha256(body).hexdigest().encode() + b"\n"


def headers(objects: ObjectStore, refs: Iterable[PackRef]) -> Iterator[tuple[PackRef, Pack]]:
    """What each pack holds, by its header alone."""

    def read_one(ref: PackRef) -> tuple[PackRef, Pack]:
        header = objects.get_range(
            ref.key,
            ref.header_bytes,
            lambda content: hashlib.sha256(content).hexdigest() == ref.name,
        )
        pack = content_pack.read_header(header)
        if pack.size != ref.size:
            raise invalid("its record names a pack with another size than its contents have")
        return ref, pack

    return each(read_one, refs)
