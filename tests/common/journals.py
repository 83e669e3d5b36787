"""A journal that cannot be written, and one that another program has written into."""

from __future__ import annotations

import os
import resource
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum.evidence.log import Log
from actum.store.database import Database
from actum.store.frames import Frame, unpacked
from actum.store.journal import FILE_NAME, Journal
from actum.store.keys import Signer

if TYPE_CHECKING:
    import pytest

START, HEAD = 64, 52


@contextmanager
def read_only(database: Database) -> Iterator[None]:
    """The descriptor as a read-only mount would give it: the kernel itself refuses each write."""
    own = database.journal._descriptor
    kept, other = os.dup(own), os.open(database.journal.path, os.O_RDONLY)
    os.dup2(other, own, inheritable=False)
    os.close(other)
    try:
        yield
    finally:
        os.dup2(kept, own, inheritable=False)
        os.close(kept)


@contextmanager
def no_room() -> Iterator[None]:
    """No file may grow, and no byte may be written behind a journal's header."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (START, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lying(home: Path, signer: Signer) -> list[Frame]:
    """The journal's frames, read through another descriptor than the tested one."""
    journal = Journal.open(home, 5.0)
    journal.acquire(5.0)
    try:
        return [unpacked(each) for each in journal.read(signer.macs(journal.salt))[0]]
    finally:
        journal.release()
        journal.close()


def places(home: Path) -> list[tuple[int, int]]:
    """Where each frame begins and ends."""
    content = (home / FILE_NAME).read_bytes()
    found, at = [], START
    while content[at : at + 4].strip(b"\0"):
        length = struct.unpack_from("<4sIII", content, at)[3]
        found.append((at, at + HEAD + length))
        at = found[-1][1]
    return found


def rewrite(home: Path, number: int, change: Callable[[bytes], bytes], *, tidy: bool) -> None:
    """Change the payload of a frame; with `tidy`, its length and checksum too."""
    path = home / FILE_NAME
    content = path.read_bytes()
    begin, end = places(home)[number]
    payload = change(content[begin + HEAD : end])
    head, mac, crc = content[begin:][:16], content[begin + 16 :][:32], content[begin + 48 :][:4]
    if tidy:
        salt = content[28:44]
        head = head[:12] + struct.pack("<I", len(payload))
        crc = struct.pack("<I", zlib.crc32(payload, zlib.crc32(head + mac, zlib.crc32(salt))))
    whole = content[:begin] + head + mac + crc + payload + content[end:]
    with path.open("r+b") as file:  # the same file, as an attacker would
        file.write(whole[: len(content)].ljust(len(content), b"\0"))


def filed(database: Database) -> int:
    """Receipts in their table, read past the store: every other way of reading files first."""
    connection = sqlite3.connect(database.path)
    try:
        return int(connection.execute("SELECT count(*) FROM receipts").fetchone()[0])
    finally:
        connection.close()


def emptied(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a clerk has filed all that lay there, and begun the journal anew."""
    done, finish = threading.Event(), Log.finish

    def finished(*given: Any) -> None:
        finish(*given)
        done.set()

    monkeypatch.setattr(Log, "finish", finished)
    return done
