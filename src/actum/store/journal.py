"""`.actum/actum.journal`: durable entries that are not in the database yet.

A file of fixed length, filled with zeros beforehand. Frames are written into it one after the
other: one `pwrite` and one `fdatasync` each, the least that a durable record costs. This module
handles bytes only: whether a frame is complete (a checksum), whether this home wrote it (a MAC),
where the end is, which process may write (the lock), and that no caller gets an answer before the
bytes are on the disk.

    header   magic, version, generation, transactions, salt, checksum; padded to 64 bytes
    frame    mark of the generation, number, how many frames before it were known to be on the
             disk, length; the HMAC-SHA-256 of that and the payload, under the signer's key and the
             header's salt; a checksum of everything; payload

Emptying the journal begins a new generation with a new salt, under which no older frame is valid,
and writes zeros over the frames. `transactions` counts those of the database: a process that finds
another number or another generation than it has cached reads the database again. Reading:

- A frame with a wrong checksum ends the journal: its writer was stopped before it could answer.
- A frame with a right checksum and a wrong MAC, or at another position than its number says, was
  not written by this home: `JournalChanged`.
- Valid frames behind the end are left by power cuts, from writers that were not answered yet. If
  such a frame says that a missing one was on the disk before it, that one was removed:
  `JournalChanged`.

Proved by tests/unit/store/test_journal.py and tests/unit/evidence/test_unlucky_journal.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path

from actum.errors import EvidenceUnavailable
from actum.kernel import NamedFile, place
from actum.value import value

FILE_NAME = "actum.journal"
VERSION = 1
FIRST_ROOM = 262_144  #: bytes of a new journal
LARGE_ROOM = 4 << 20  #: bytes of a busy journal
LARGEST_FRAME = 1 << 20
#: After this many frames of one process, the larger size pays off.
MANY_FRAMES = 32
_ROOM_TO_SPARE = 64  #: times `LARGE_ROOM` must be free on the disk before the file grows

_MAGIC = b"ACTUMJNL"
_HEADER = struct.Struct("<8sIQQ16s")
START = 64  #: offset of the first frame
_MARK_BYTES = 4
_FRAME = struct.Struct("<4sIII")
_CRC = struct.Struct("<I")
MAC_BYTES = 32
FRAME_HEAD_BYTES = _FRAME.size + MAC_BYTES + _CRC.size
#: The page cache holds a file in folios as long as the writes that filled it, up to 2 MiB. The
#: kernel walks a whole folio for each write and sync of a part of it.
_PIECE = 16_384
_CHUNK = 262_144
_ZEROS = bytes(_CHUNK)
_LONGEST_PAUSE_S = 0.01

_CLOSED_TO_US = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENXIO, errno.EISDIR}

#: The MAC of a frame's head and payload, under one key and one salt.
Mac = Callable[[bytes, bytes], bytes]


class JournalChanged(EvidenceUnavailable):
    """The journal holds bytes that this home did not write, or lacks some that it did."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The journal {path} was changed: {why}. Nothing is read or added until it is right.",
            remedy="Restore the home from a backup; keep this one to find the cause.",
        )


@value(kw_only=False)
class Revision:
    """The state of the database that the frames continue."""

    generation: int
    transactions: int


@value(kw_only=False)
class Stray:
    """A valid frame behind the end of the journal."""

    number: int
    durable: int  #: how many frames its writer knew to be on the disk
    payload: bytes


class Journal:
    """One process's handle of the file. Callers hold the `Database`'s lock, except for `sync`."""

    def __init__(self, path: Path, descriptor: int, *, writes: bool = True) -> None:
        self.path = path
        self._writes = writes
        self._named = NamedFile(str(path))
        self._descriptor = descriptor
        self._process = os.getpid()
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EvidenceUnavailable(
                f"{path} is not a regular file.", remedy="Move it aside; a new one is made."
            )
        self._place = place(status)
        self._size = status.st_size
        self._depth = 0
        self._header: bytes | None = None
        self.revision = Revision(-1, -1)
        self.salt = b""
        self._salt_crc = 0
        self._mark = b""
        self.frames = 0  #: how many this process has read or written
        self._most = 0  # the most there were in this generation
        self._end = START
        self._scanned = False  # whether the file was searched behind the end
        self.unfinished = False  #: bytes behind the end: empty the journal before the next frame
        self._appended = (0, 0, 0)  # tickets issued; generation and frames at that time
        self._durable = (0, 0, 0)
        self._syncing = threading.Lock()
        self._failed: EvidenceUnavailable | None = None

    @classmethod
    def open(cls, home: Path, wait_s: float) -> Journal:
        """Open `home`/actum.journal, created if it is missing; `home` exists."""
        path = home / FILE_NAME
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            journal = cls(path, descriptor)
            journal.acquire(wait_s)
            journal.release()
        except BaseException:
            os.close(descriptor)
            raise
        _opened.add(journal)
        return journal

    @classmethod
    def open_to_read(cls, home: Path) -> Journal:
        """Open `home`/actum.journal read-only, without creating it."""
        path = home / FILE_NAME
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError as error:
            raise JournalChanged(path, "it is missing") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            journal = cls(path, descriptor, writes=False)
        except BaseException:
            os.close(descriptor)
            raise
        _opened.add(journal)
        return journal

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._failed = EvidenceUnavailable(
                f"The journal {self.path} is closed.", remedy="Open the project again."
            )

    # The write lock

    def acquire(self, wait_s: float) -> None:
        """Take the write lock of this home: for a frame, and for any transaction of the database.

        Lock order, everywhere: the `Database`'s own lock, this one, SQLite's.
        """
        if self._depth == 0:
            self._require_usable()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(wait_s)
            except OSError as error:
                raise _unusable(self.path, error) from error
            try:
                # Is it still our file, and which state of the database does it continue?
                size = self._require_same_file()
                if size != self._size:
                    self._set_length(size)
                header = os.pread(self._descriptor, START, 0)
                if header != self._header:
                    self._read_header(header)
            except OSError as error:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                raise _unusable(self.path, error) from error
            except BaseException:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                raise
        self._depth += 1

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _wait(self, wait_s: float) -> None:
        pause, until = 0.0001, time.monotonic() + wait_s
        while True:
            time.sleep(pause)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise held(self.path, wait_s) from None
                pause = min(pause * 1.5, _LONGEST_PAUSE_S)
            else:
                return

    def _require_same_file(self) -> int:
        """The file's length; raises unless it is still the file that was opened."""
        # By name: the descriptor of a moved or replaced file stays valid.
        try:
            found = self._named.look()
        except OSError as error:
            raise JournalChanged(self.path, "it is missing") from error
        if found == self._place:
            return self._size
        if found[:-1] != self._place[:-1]:
            raise JournalChanged(self.path, "it was replaced by another file")
        if found[-1] < self._size:
            raise JournalChanged(self.path, "it is shorter than it was")
        return found[-1]

    def _set_length(self, size: int) -> None:
        self._size = size
        self._place = (*self._place[:-1], size)

    def _read_header(self, header: bytes) -> None:
        if header == bytes(len(header)):
            if self._header or not self._writes or self._anything_from(0):
                raise JournalChanged(self.path, "its header is gone")
            self._make()
            return
        magic, version, generation, transactions, salt = _HEADER.unpack_from(
            header.ljust(START, b"\0")
        )
        if magic != _MAGIC:
            raise JournalChanged(self.path, "it has no journal header")
        if version != VERSION:
            raise EvidenceUnavailable(
                f"{self.path} is of version {version}; this Actum knows version {VERSION}.",
                remedy="Upgrade Actum, or name another home with `--home DIR`.",
            )
        if header != _padded_header(generation, transactions, salt):
            raise JournalChanged(self.path, "its header is not what was written there")
        known = self.revision.generation == generation and self.salt == salt
        self._set_header(Revision(generation, transactions), salt, header)
        if not known:
            self.frames, self._most, self._end, self.unfinished = 0, 0, START, False

    def _set_header(self, revision: Revision, salt: bytes, header: bytes) -> None:
        self.revision, self.salt, self._header = revision, salt, header
        self._salt_crc = zlib.crc32(salt)
        # Random per generation: a payload may hold a tool's file, full of bytes that look like
        # frames, but the tool cannot know this mark. The first byte is never zero.
        self._mark = b"\x97" + salt[: _MARK_BYTES - 1]

    def _make(self) -> None:
        """Fill a new file. The header is written last: once it is there, the rest is durable."""
        _fill(self._descriptor, 0, FIRST_ROOM)
        os.fsync(self._descriptor)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._set_length(FIRST_ROOM)
        self._begin(Revision(1, 0), START)

    def _begin(self, revision: Revision, cleared_to: int) -> None:
        salt = os.urandom(16)
        header = _padded_header(revision.generation, revision.transactions, salt)
        # Header first, in the same call: after a partial write the old frames are invalid.
        _write_all(self._descriptor, header + bytes(max(0, cleared_to - START)), 0)
        self._set_header(revision, salt, header)
        self.frames, self._most, self._end, self.unfinished = 0, 0, START, False

    # Reading

    def has_frames(self) -> bool:
        """Whether there are entries to write out. Without the lock, a yes may be outdated."""
        self._require_usable()
        self._require_same_file()
        if self.frames:
            return True
        return self._pread(_MARK_BYTES, START).strip(b"\0") != b""

    def rewind(self, *, scanned: bool = False) -> None:
        """Read from the beginning again, and search behind the end too.

        `scanned`: the caller has searched behind the end in this generation. Bytes written since
        then begin at the end: the lock's holder writes nowhere else, and a write that a kill cuts
        short has its first bytes.
        """
        self._most = max(self._most, self.frames)
        self._scanned = self._scanned and scanned
        self.frames, self._end = 0, START

    @property
    def nothing_new(self) -> bool:
        """Whether this process has read or written every frame."""
        if not self._scanned:
            return False
        return not self._pread(FRAME_HEAD_BYTES, self._end).strip(b"\0")

    def read(self, mac: Mac) -> tuple[list[bytes], list[Stray]]:
        """The payloads not read yet, and valid frames behind the end. With the lock held."""
        found: list[bytes] = []
        while (head := self._pread(FRAME_HEAD_BYTES, self._end)).strip(b"\0"):
            length = FRAME_HEAD_BYTES + _length(head)
            # The length is untrusted: no frame is longer than the file.
            data = self._pread(min(length, self._size), self._end)
            payload = self._frame(data, self.frames, mac)
            if payload is None:
                self._scanned = False
                break
            found.append(payload)
            self._end += length
            self.frames += 1
        if self.frames < self._most:
            raise JournalChanged(self.path, f"frame {self.frames} was there and is missing")
        if self._scanned:
            return found, []
        self._scanned = True
        self.unfinished = self._anything_from(self._end)
        return found, self._strays(mac) if self.unfinished else []

    def _frame(self, data: bytes, number: int, mac: Mac) -> bytes | None:
        found = self._whole(data, 0)
        if found is None:
            return None
        head, written, payload = found
        if mac(head, payload) != written:
            raise JournalChanged(self.path, f"frame {number} was not written by this home's key")
        if _FRAME.unpack(head)[1] != number:
            raise JournalChanged(self.path, f"frame {number} is at another position")
        return payload

    def _whole(self, data: bytes, at: int) -> tuple[bytes, bytes, bytes] | None:
        """Head, MAC and payload of a frame, if its checksum is right."""
        start = at + FRAME_HEAD_BYTES
        end = start + _length(data[at:start])
        if data[at : at + _MARK_BYTES] != self._mark or len(data) < end:
            return None
        payload = data[start:end]
        (checksum,) = _CRC.unpack_from(data, start - _CRC.size)
        if checksum != self._checksum(data[at : start - _CRC.size], payload):
            return None
        return data[at : at + _FRAME.size], data[at + _FRAME.size : start - _CRC.size], payload

    def _checksum(self, head_and_mac: bytes, payload: bytes) -> int:
        # The salt comes first: a frame of a former generation has a wrong checksum.
        return zlib.crc32(payload, zlib.crc32(head_and_mac, self._salt_crc))

    def _strays(self, mac: Mac) -> list[Stray]:
        strays, rest = [], self._pread(self._size - self._end, self._end)
        at = rest.find(self._mark)
        while at >= 0:
            found = self._whole(rest, at)
            if found and mac(found[0], found[2]) == found[1]:
                _, number, durable, _ = _FRAME.unpack(found[0])
                strays.append(Stray(number, durable, found[2]))
            at = rest.find(self._mark, at + 1)
        return strays

    def _anything_from(self, at: int) -> bool:
        """Whether the file holds anything but zeros from offset `at` on."""
        chunk = bytearray(_CHUNK)  # reused: allocating costs more than comparing
        try:
            while length := os.preadv(self._descriptor, [chunk], at):
                if (chunk if length == _CHUNK else chunk[:length]) != _ZEROS[:length]:
                    return True
                at += length
        except OSError as error:
            raise _unusable(self.path, error) from error
        return False

    def _pread(self, length: int, at: int) -> bytes:
        try:
            return os.pread(self._descriptor, length, at)
        except OSError as error:
            raise _unusable(self.path, error) from error

    @property
    def almost_full(self) -> bool:
        """Whether three quarters of `LARGE_ROOM` are used, as far as this process knows."""
        return self._end > LARGE_ROOM * 3 // 4

    # Concurrently with writers, without the lock

    start = START  #: offset of the first frame

    def read_frame(self, number: int, at: int, mac: Mac) -> tuple[bytes, int] | None:
        """The payload of the frame at offset `at`, and the offset behind it.

        ``None`` if there is none yet, and if the journal is of another generation than `mac`.
        """
        self._require_usable()
        head = self._pread(FRAME_HEAD_BYTES, at)
        if not head.strip(b"\0"):
            return None
        length = FRAME_HEAD_BYTES + _length(head)
        payload = self._frame(self._pread(min(length, self._size), at), number, mac)
        return None if payload is None else (payload, at + length)

    # Writing, with the lock held

    def holds(self, payload_bytes: int) -> bool:
        """Whether an empty journal of the current length has space for it. Needs no lock."""
        return START + FRAME_HEAD_BYTES + payload_bytes <= self._size

    def fits(self, payload_bytes: int) -> bool:
        """Whether a frame of that size has space now; lengthens the file if allowed."""
        wanted = self._end + FRAME_HEAD_BYTES + payload_bytes
        busy = self._appended[0] == MANY_FRAMES
        if self._size < LARGE_ROOM and (wanted > self._size or busy):
            self._grow()
        return wanted <= self._size

    def _grow(self) -> None:
        """Lengthen the file with zeros, if the disk has plenty of space.

        A sync of bytes within the file's length costs a third less than one that makes the file
        longer, which the file system has to journal. The sync of the next frame makes the new
        length durable too.
        """
        before, disk = self._size, os.fstatvfs(self._descriptor)
        if disk.f_bavail * disk.f_frsize < _ROOM_TO_SPARE * LARGE_ROOM:
            return
        try:
            _fill(self._descriptor, before, LARGE_ROOM)
        except OSError:  # a quota
            os.ftruncate(self._descriptor, before)
        else:
            self._set_length(LARGE_ROOM)

    def append(self, payload: bytes, mac: Mac) -> int:
        """Write a frame that `fits` at the end; returns the ticket for `sync`."""
        generation, durable = self.revision.generation, self._durable
        known = durable[2] if durable[1] == generation else 0
        head = _FRAME.pack(self._mark, self.frames, known, len(payload))
        head += mac(head, payload)
        frame = head + _CRC.pack(self._checksum(head, payload)) + payload
        try:
            if os.pwrite(self._descriptor, frame, self._end) != len(frame):
                _write_all(self._descriptor, frame, self._end)
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.frames += 1
        self._end += len(frame)
        ticket = self._appended[0] + 1
        self._appended = (ticket, generation, self.frames)
        return ticket

    def touch(self) -> None:
        """Invalidate, before a commit, what other processes have cached of the database."""
        revision = Revision(self.revision.generation, self.revision.transactions + 1)
        header = _padded_header(revision.generation, revision.transactions, self.salt)
        try:
            os.pwrite(self._descriptor, header, 0)
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.revision, self._header = revision, header

    def empty(self) -> None:
        """Begin a new generation, once the database durably holds every frame.

        Nothing is synced. The next frame's sync covers it. Until then a power cut may bring the
        old frames back; their record numbers show that the database has them.
        """
        cleared_to = self._size if self.unfinished else self._end
        revision = Revision(self.revision.generation + 1, self.revision.transactions + 1)
        try:
            self._begin(revision, cleared_to)
        except OSError as error:
            raise _unusable(self.path, error) from error

    # Without any other lock

    def sync(self, ticket: int) -> None:
        """Return when the frame of `ticket` is on the disk; one sync serves all waiting threads."""
        if ticket <= self._durable[0]:
            return
        with self._syncing:
            if ticket <= self._durable[0]:
                return
            self._sync()

    def settle(self) -> None:
        """Return when all bytes written by any thread are on the disk."""
        with self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._require_usable()
        covered = self._appended
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # The kernel reports a write-back error once and then drops the pages: bytes written
            # since the last good sync may be lost, and a second sync would falsely succeed.
            self._failed = _unusable(self.path, error)
            raise self._failed from error
        self._durable = covered

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise EvidenceUnavailable(
                f"{self.path} was opened by the process that this one was forked from.",
                remedy="Open the project after the fork, in each process.",
            )
        if self._failed is not None:
            raise self._failed


#: Journals of this process. A fork shares their descriptors and with them the flock, which would
#: outlive a killed holder for as long as the fork lives. So the child closes them at once.
_opened: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_in_child() -> None:
    for journal in _opened:
        journal.close()


os.register_at_fork(after_in_child=_close_in_child)


def held(path: Path, wait_s: float) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The store {path} is held by another process for more than {wait_s:g} s.",
        remedy="Try again; if it persists, look for a stopped `actum` process.",
    )


def _padded_header(generation: int, transactions: int, salt: bytes) -> bytes:
    plain = _HEADER.pack(_MAGIC, VERSION, generation, transactions, salt)
    return (plain + _CRC.pack(zlib.crc32(plain))).ljust(START, b"\0")


def _length(head: bytes) -> int:
    """The payload's length according to a frame's head; 0 if there is no head."""
    return int(_FRAME.unpack_from(head)[3]) if len(head) == FRAME_HEAD_BYTES else 0


def _fill(descriptor: int, start: int, end: int) -> None:
    for at in range(start, end, _PIECE):
        _write_all(descriptor, _ZEROS[: min(_PIECE, end - at)], at)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], at + written)


def _unreadable(path: Path, error: OSError) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The journal {path} cannot be read: {error.strerror}.",
        remedy="Check its owner and its mode, and that it is a regular file.",
    )


def _unusable(path: Path, error: OSError) -> EvidenceUnavailable:
    if error.errno in _CLOSED_TO_US:
        remedy = "Check its owner, its mode and that its file system is not mounted read-only."
        return EvidenceUnavailable(
            f"The journal {path} cannot be written: {error.strerror}.", remedy=remedy
        )
    return EvidenceUnavailable(
        f"The journal {path} cannot take more records: {error.strerror}.",
        remedy="Free space on that file system, or look for disk errors in the kernel log.",
    )
