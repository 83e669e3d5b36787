"""The form of an evidence archive: an uncompressed tar of regular files, written in one way only.

    actum-evidence/manifest.json              name, size and SHA-256 of every other entry, signed
    actum-evidence/checkpoint                 the signed head of the log
    actum-evidence/keys/KEYID.pub             public keys of the project, retired ones included
    actum-evidence/rotations/SEQ.json         proofs of the records that replaced a key
    actum-evidence/receipts/ID/receipt.json   a signed receipt, to the byte
    actum-evidence/receipts/ID/proof.json     the record that closed it, and its place in the log
    actum-evidence/receipts/ID/evidence.json  the evidence record, if it was asked for
    actum-evidence/receipts/ID/trace.json     the trace events, likewise
    actum-evidence/files/SHA256               collected files, if they were asked for

The reader computes each header from the name and the size in it and compares the bytes. So links,
devices, long names, extensions and every other feature of tar are refused, nothing is ever
extracted, and a changed byte of a header or of the padding is noticed like one of the content.
There is no compression: a compressed stream has bits that no reader checks.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from actum.errors import VerificationFailed
from actum.value import value

FORMAT = "urn:actum:evidence-archive:v1"
PAYLOAD_TYPE = "application/vnd.actum.evidence-archive+json"
TOP = "actum-evidence/"
MANIFEST = "manifest.json"
CHECKPOINT = "checkpoint"
#: Upper bound of an entry that is read into memory; collected files are read in parts.
LARGEST_DOCUMENT = 64 * 1024 * 1024

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_PART = 1024 * 1024
_ID = r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}"
_NAME = re.compile(
    rf"manifest\.json|checkpoint|keys/[0-9a-f]{{64}}\.pub|rotations/[1-9][0-9]{{0,17}}\.json"
    rf"|receipts/{_ID}/(?:receipt|proof|evidence|trace)\.json|files/[0-9a-f]{{64}}"
)


@value
class Member:
    """An entry whose content is read from the stream, part by part, before the next one."""

    name: str
    size: int
    parts: Iterator[bytes]


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def header(name: str, size: int) -> bytes:
    """The block before an entry's content: always the same owner, mode and time."""
    entry = tarfile.TarInfo(TOP + name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def looks_like_archive(start: bytes) -> bool:
    """By the first block of a file, which may have been changed."""
    return start.startswith(TOP.encode()) or start[257:262] == b"ustar"


def end() -> bytes:
    return _END


def members(file: BinaryIO) -> Iterator[Member]:
    """The entries in order; raises `VerificationFailed` at the first byte that is not ours."""
    number = 0
    while True:
        number += 1
        block = file.read(_BLOCK)
        if block == _END[:_BLOCK]:
            if file.read(_BLOCK + 1) != _END[_BLOCK:]:
                raise VerificationFailed("The archive does not end where its last entry ends.")
            return
        name, size = _named(block, number)
        left = [size]
        yield Member(name=name, size=size, parts=_parts(file, name, left))
        for _ in _parts(file, name, left):
            pass  # what the caller has not read
        if file.read(len(padding(size))) != padding(size):
            raise VerificationFailed(f"{name}: the bytes after its content are not zero.")


def _named(block: bytes, number: int) -> tuple[str, int]:
    try:
        entry = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        name = entry.name.removeprefix(TOP)
        canonical = is_name(name) and header(name, entry.size) == block
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise VerificationFailed(f"Entry {number} has no readable header ({error}).") from error
    if not canonical:
        raise VerificationFailed(
            f"Entry {number} ({entry.name[:80]!r}) is not one that Actum writes: only regular files"
            f" of known names, with fixed owner, mode and time."
        )
    return name, entry.size


def _parts(file: BinaryIO, name: str, left: list[int]) -> Iterator[bytes]:
    while left[0]:
        part = file.read(min(left[0], _PART))
        if not part:
            raise VerificationFailed(f"{name}: the archive ends {left[0]} bytes before its end.")
        left[0] -= len(part)
        yield part
