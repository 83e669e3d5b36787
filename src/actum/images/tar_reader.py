"""Reads tar archives strictly: ustar, pax and GNU's long names, and nothing that is ambiguous.

The standard `tarfile` follows chains of extended headers without a bound, reads them whole into
memory, and accepts archives that two readers can understand differently. This one knows where each
byte belongs, or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from actum.images.bounded_stream import BoundedStream
from actum.images.image_bounds import Bounds, invalid, shown, too_large
from actum.value import value

BLOCK = 512
_ZEROS = bytes(BLOCK)
#: Extended keys that change what an entry is; of a global header they are refused.
_USED = (b"path", b"linkpath", b"size")


class Kind(Enum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "symbolic link"
    SAME = "hard link"
    SPECIAL = "device, fifo or socket"


_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.SAME,
    b"2": Kind.LINK,
    b"3": Kind.SPECIAL,
    b"4": Kind.SPECIAL,
    b"5": Kind.FOLDER,
    b"6": Kind.SPECIAL,
}


@value
class Member:
    """One entry, as the archive describes it."""

    name: bytes
    kind: Kind
    mode: int
    size: int  #: of the content that follows; 0 except for a file
    mtime: int
    target: bytes  #: of a link


def members(stream: BoundedStream, bounds: Bounds) -> Iterator[Member]:
    """Each entry in order. The caller reads exactly `size` bytes before it asks for the next."""
    while True:
        extended: dict[bytes, bytes] = {}
        header = _header(stream)
        seen: set[bytes] = set()
        while header is not None and header[156:157] in b"xgLK":
            kind = header[156:157]
            if kind in seen:
                raise invalid("an entry of an archive has two extended headers of one kind")
            if kind != b"g":
                seen.add(kind)
            _extend(extended, kind, stream, _number(header[124:136], "size"), bounds)
            header = _header(stream)
            if header is None:
                raise invalid("an archive in it ends in the middle of an entry")
        if header is None:
            return
        member = _member(header, extended)
        yield member
        if member.size % BLOCK:
            stream.skip(BLOCK - member.size % BLOCK)


def _header(stream: BoundedStream) -> bytes | None:
    """The next header block; ``None`` at the end."""
    first = stream.read(BLOCK)
    if not first:
        return None
    block = first if len(first) == BLOCK else first + stream.exactly(BLOCK - len(first))
    if block == _ZEROS:
        return None
    # The checksum counts its own field as spaces.
    if sum(block) - sum(block[148:156]) + 8 * 32 != _number(block[148:156], "checksum"):
        raise invalid("it is no tar archive, or a header in it is damaged")
    return block


def _number(field: bytes, what: str) -> int:
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise invalid(f"an entry of an archive has a negative {what}")
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not all(digit in b"01234567" for digit in digits):
        raise invalid(f"an entry of an archive has a {what} that is no number")
    return int(digits, 8)


def _extend(
    extended: dict[bytes, bytes], kind: bytes, stream: BoundedStream, size: int, bounds: Bounds
) -> None:
    if size > bounds.header_bytes:
        raise too_large(
            f"an entry of an archive has an extended header of {size} bytes; at most"
            f" {bounds.header_bytes} are read"
        )
    content = stream.exactly(size)
    stream.skip(-size % BLOCK)
    if kind in b"LK":
        extended[b"path" if kind == b"L" else b"linkpath"] = content.split(b"\0", 1)[0]
        return
    records = dict(_records(content))
    if kind == b"g":
        if any(key in records for key in _USED):
            raise invalid("an archive in it names one path or size for all its entries")
        return
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise _sparse()
    # Both forms of a long name at once would be two names for one entry.
    if any(key in extended and key in records for key in _USED):
        raise invalid("an entry of an archive has two names")
    extended.update(records)


def _sparse() -> Exception:
    return invalid("an archive in it has a sparse file; pack it without --sparse")


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The records of a pax header: ``LENGTH KEY=VALUE\\n``."""
    at = 0
    while at < len(content):
        space = content.find(b" ", at, at + 12)
        length = content[at:space] if space > 0 else b""
        if not length.isdigit() or length.startswith(b"0"):
            raise invalid("an extended header of an archive is malformed")
        end = at + int(length)
        key, equals, text = content[space + 1 : end - 1].partition(b"=")
        if end > len(content) or end <= space or content[end - 1 : end] != b"\n" or not equals:
            raise invalid("an extended header of an archive is malformed")
        yield key, text
        at = end


def _member(header: bytes, extended: dict[bytes, bytes]) -> Member:
    name = _text(header[:100])
    if header[257:263] == b"ustar\0" and header[345]:
        name = _text(header[345:500]) + b"/" + name
    name = extended.get(b"path") or name
    flag = header[156:157]
    if flag == b"S":
        raise _sparse()
    kind = _KINDS.get(flag)
    if kind is None:
        raise invalid(f"{shown(name)} is an entry of an unknown kind ({shown(flag)})")
    if kind is Kind.FILE and flag != b"7" and name.endswith(b"/"):
        kind = Kind.FOLDER  # of archives older than the type of folders
    size = _number(header[124:136], "size")
    if given := extended.get(b"size"):
        if not given.isdigit() or len(given) > 20:
            raise invalid(f"{shown(name)} has a size that is no number")
        size = int(given)
    return Member(
        name=name,
        kind=kind,
        mode=_number(header[100:108], "mode"),
        size=size if kind is Kind.FILE else 0,
        mtime=_mtime(header[136:148], extended.get(b"mtime", b"")),
        target=extended.get(b"linkpath") or _text(header[157:257]),
    )


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _mtime(field: bytes, given: bytes) -> int:
    """Whole seconds, never before 1970: interpreters compare them with their compiled files."""
    whole = given.partition(b".")[0]
    if whole.isdigit() and len(whole) < 12:
        return int(whole)
    if field[0] & 0x80 or not field.strip(b" \0").isdigit():
        return 0
    return min(_number(field, "time"), 1 << 33)
