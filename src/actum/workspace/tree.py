"""The state of a workspace: entries, and the Merkle hash over them.

A state is a tree of names. An entry consists of its path, its type, the permission bits
(mode & 0777) and its content: a file's bytes, a link's target, a folder's entries. Times, owners,
inode numbers and holes are no part of it, so two machines with the same tree compute the same hash.
Names are bytes, as in the kernel. Nothing here accesses a disk.
"""

from __future__ import annotations

import stat
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from blake3 import blake3

from actum.value import value

_VERSION = b"actum-state-v1\n"
PERMISSIONS = 0o777


class Kind(StrEnum):
    FILE = "f"
    FOLDER = "d"
    LINK = "l"
    OTHER = "o"  #: a pipe, socket or device: named and never read


DIGEST_BYTES = 32
_TYPES = {Kind.FILE: stat.S_IFREG, Kind.FOLDER: stat.S_IFDIR, Kind.LINK: stat.S_IFLNK}
_LETTERS = {kind: kind.value.encode() for kind in Kind}
_KINDS = {ord(kind.value): kind for kind in Kind}


class Entry(NamedTuple):
    """One name in a folder, as far as it is part of the state."""

    kind: Kind
    mode: int
    digest: bytes  #: BLAKE3 of content, target or entries

    @property
    def type_and_mode(self) -> int:
        """Type and mode as in `st_mode`."""
        return _TYPES.get(self.kind, 0) | self.mode

    @property
    def is_file(self) -> bool:
        """Anything but a folder."""
        return self.kind is not Kind.FOLDER


def line_of(name: bytes, entry: Entry) -> bytes:
    """An entry as it is hashed, with the length of its name first."""
    return b"%d:%b%b%o:%b" % (len(name), name, _LETTERS[entry.kind], entry.mode, entry.digest)


def entry_in(line: bytes, name: bytes) -> Entry:
    """The entry in a line."""
    at = line.index(b":") + 1 + len(name)
    return Entry(_KINDS[line[at]], int(line[at + 1 : -1 - DIGEST_BYTES], 8), line[-DIGEST_BYTES:])


def folder_digest(lines: bytes) -> bytes:
    """The hash of a folder: of the lines of its entries, sorted by name."""
    return blake3(_VERSION + lines).digest()


def state_hash(mode: int, top: bytes) -> str:
    """The hash of a whole state, from the mode and the digest of its topmost folder."""
    return blake3(b"%b%o:%b" % (_VERSION, mode & PERMISSIONS, top)).hexdigest()


def content_digest(content: bytes) -> bytes:
    return blake3(content).digest()


class Action(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"


@value(kw_only=False)
class Change:
    """One path that differs between two states."""

    path: bytes  #: relative to the workspace, without a slash at either end; b"" is its top
    before: Entry | None
    after: Entry | None

    @property
    def action(self) -> Action:
        if self.after is None:  # also where another item has deleted it before
            return Action.DELETED
        return Action.CREATED if self.before is None else Action.MODIFIED

    @property
    def file_action(self) -> Action | None:
        """The change of a *file* of this name; a folder that becomes a file creates one."""
        was = self.before is not None and self.before.is_file
        is_ = self.after is not None and self.after.is_file
        if was and is_:
            return Action.MODIFIED
        if is_:
            return Action.CREATED
        return Action.DELETED if was else None


Delta = tuple[Change, ...]  #: sorted by path, each path once


def parent_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def joined(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def is_below(path: bytes, folder: bytes) -> bool:
    return not folder or path == folder or path.startswith(folder + b"/")


_QUOTED = "%:"  #: begins a path that is written in percent-encoding


def shown(path: bytes) -> str:
    """A path as readable text that stands for exactly these bytes.

    A printable name is written as it is. Any other one is percent-encoded behind `%:`, and so is a
    name that begins with these two characters.
    """
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return _QUOTED + quote_from_bytes(path)
    if text.isprintable() and not text.startswith(_QUOTED):
        return text
    return _QUOTED + quote_from_bytes(path)


def unshown(text: str) -> bytes:
    """The path that `shown` has written."""
    return unquote_to_bytes(text[len(_QUOTED) :]) if text.startswith(_QUOTED) else text.encode()


def shown_by_0_1(path: bytes) -> str:
    """The form in receipts of version 0.1: percent-encoded if there is a `%`."""
    text = shown(path)
    return quote_from_bytes(path) if text.startswith(_QUOTED) or "%" in text else text
