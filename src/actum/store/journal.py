"""`.actum/actum.journal`: what is on record before it is filed into the database.

A file of one length, filled with zeros beforehand, into which frames are written one behind the
other: one `pwrite` and one `fdatasync` each, which is what a durable record costs at least. Here
are only bytes: whether a frame is whole (a checksum), whether we wrote it (a MAC), where the end
is, who may write now (the lock), and that nobody is answered before the bytes are on the disk.

    header   magic, version, generation, turns, salt, checksum; padded to 64 bytes
    frame    mark of the generation, number, how many frames before it were known to be on the
             disk, length; the HMAC-SHA-256 of that and the payload, under the signer's key and the
             header's salt; a checksum of everything; payload

Emptying it means a new generation with a new salt, for which no older frame is right any more, and
zeros over what was there. `turns` counts the transactions of the database: whoever finds another
number or another generation than they remember starts again from the database. To read it:

- A frame whose checksum is wrong ends the journal: its writer was stopped, and nobody was answered.
- One with a right checksum and a wrong MAC, or one at another place than its number says, was not
  written by us: `JournalChanged`.
- Right frames behind the end are what power cuts leave of frames that nobody had waited for yet. If
  they say that a missing one was on the disk before them, it was taken away: `JournalChanged`.

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
LARGE_ROOM = 4 << 20  #: and of one that is used a lot
LARGEST_FRAME = 1 << 20
#: From this frame of a process on, more room is worth its price.
MANY_FRAMES = 32
_ROOM_TO_SPARE = 64  #: times that much must be free on the disk

_MAGIC = b"ACTUMJNL"
_HEADER = struct.Struct("<8sIQQ16s")
START = 64  #: where the first frame lies
_MARK_BYTES = 4
_FRAME = struct.Struct("<4sIII")
_CRC = struct.Struct("<I")
MAC_BYTES = 32
FRAME_HEAD_BYTES = _FRAME.size + MAC_BYTES + _CRC.size
#: The kernel keeps a file in pieces as long as the writes that made it, up to 2 MiB, and goes
#: through all of a piece for each write and each sync that concerns a part of it.
_PIECE = 16_384
_CHUNK = 262_144
_ZEROS = bytes(_CHUNK)
_LONGEST_PAUSE_S = 0.01

_CLOSED_TO_US = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENXIO, errno.EISDIR}

#: The MAC of a frame's head and payload, under one key and one salt.
Mac = Callable[[bytes, bytes], bytes]


class JournalChanged(EvidenceUnavailable):
    """Somebody else has written into the journal, or taken something out of it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The journal {path} was changed: {why}. Nothing is read or added until it is right.",
            remedy="Restore the home from a backup; keep this one, for whoever finds out why.",
        )


@value(kw_only=False)
class Turn:
    """Which state of the database the frames continue."""

    generation: int
    turns: int


@value(kw_only=False)
class Stray:
    """A right frame behind the end of the journal."""

    number: int
    durable: int  #: how many frames its writer knew to be on the disk
    payload: bytes


class Journal:
    """One process's hold on the file. Who uses it holds the `Database`'s lock, but for `sync`."""

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
        self.turn = Turn(-1, -1)
        self.salt = b""
        self._salt_crc = 0
        self._mark = b""
        self.frames = 0  #: as many are read or written by us
        self._most = 0  # and as many there were ever, in this generation
        self._end = START
        self._looked_through = False  # the whole file, for what lies behind the end
        self.unfinished = False  #: there is something behind the end: empty it before going on
        self._appended = (0, 0, 0)  # tickets given out; generation and frames by then
        self._durable = (0, 0, 0)
        self._syncing = threading.Lock()
        self._failed: EvidenceUnavailable | None = None

    @classmethod
    def open(cls, home: Path, wait_s: float) -> Journal:
        """Open `home`/actum.journal, made if it is not there; `home` exists."""
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
        """Open `home`/actum.journal for a reader who writes nothing and makes no file."""
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

    # Whose turn it is

    def acquire(self, wait_s: float) -> None:
        """Take the write lock of this home: for a frame, and for any transaction of the database.

        Order of locks, everywhere: the `Database`'s of this process, this one, SQLite's.
        """
        if self._depth == 0:
            self._require_sound()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(wait_s)
            except OSError as error:
                raise _unusable(self.path, error) from error
            try:
                # Whose file it is, and which state of the database it is of.
                size = self._require_ours()
                if size != self._size:
                    self._lengthened(size)
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

    def _require_ours(self) -> int:
        """The file's length, if it is still the one that was opened."""
        # By name: a file that was moved or replaced still answers to its descriptor.
        try:
            found = self._named.look()
        except OSError as error:
            raise JournalChanged(self.path, "it is not there any more") from error
        if found == self._place:
            return self._size
        if found[:-1] != self._place[:-1]:
            raise JournalChanged(self.path, "another file lies in its place")
        if found[-1] < self._size:
            raise JournalChanged(self.path, "it is shorter than it was")
        return found[-1]

    def _lengthened(self, size: int) -> None:
        self._size = size
        self._place = (*self._place[:-1], size)

    def _read_header(self, header: bytes) -> None:
        if header == bytes(len(header)):
            if self._header or not self._writes or self._behind(0):
                raise JournalChanged(self.path, "its header is gone")
            self._make()
            return
        magic, version, generation, turns, salt = _HEADER.unpack_from(header.ljust(START, b"\0"))
        if magic != _MAGIC:
            raise JournalChanged(self.path, "it does not begin as a journal does")
        if version != VERSION:
            raise EvidenceUnavailable(
                f"{self.path} is of version {version}; this Actum knows version {VERSION}.",
                remedy="Upgrade Actum, or name another home with `--home DIR`.",
            )
        if header != _padded_header(generation, turns, salt):
            raise JournalChanged(self.path, "its header is not what was written there")
        known = self.turn.generation == generation and self.salt == salt
        self._take_over(Turn(generation, turns), salt, header)
        if not known:
            self.frames, self._most, self._end, self.unfinished = 0, 0, START, False

    def _take_over(self, turn: Turn, salt: bytes, header: bytes) -> None:
        self.turn, self.salt, self._header = turn, salt, header
        self._salt_crc = zlib.crc32(salt)
        # Never the same: a file that a tool left is part of a payload, and could be full of what
        # looks like frames. This it cannot know. The first byte tells it from nothing.
        self._mark = b"\x97" + salt[: _MARK_BYTES - 1]

    def _make(self) -> None:
        """Fill a new file. The header is written last: whoever finds it finds the rest durable."""
        _fill(self._descriptor, 0, FIRST_ROOM)
        os.fsync(self._descriptor)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._lengthened(FIRST_ROOM)
        self._begin(Turn(1, 0), START)

    def _begin(self, turn: Turn, cleared_to: int) -> None:
        salt = os.urandom(16)
        header = _padded_header(turn.generation, turn.turns, salt)
        # The header first, in the same call: stopped half way, what is left is of no generation.
        _write_all(self._descriptor, header + bytes(max(0, cleared_to - START)), 0)
        self._take_over(turn, salt, header)
        self.frames, self._most, self._end, self.unfinished = 0, 0, START, False

    # Reading

    def lies(self) -> bool:
        """Whether anything waits to be filed; without a lock it may say yes a moment too long."""
        self._require_sound()
        self._require_ours()
        if self.frames:
            return True
        return self._pread(_MARK_BYTES, START).strip(b"\0") != b""

    def rewind(self, *, looked_through: bool = False) -> None:
        """Read from the beginning again, and what lies behind the end too.

        `looked_through`: whoever asks knows the end, since he has looked there in this generation.
        Whatever has come there since begins at the end: whoever holds the lock writes nowhere else,
        and a write that is cut short by a kill has its first bytes.
        """
        self._most = max(self._most, self.frames)
        self._looked_through = self._looked_through and looked_through
        self.frames, self._end = 0, START

    @property
    def nothing_new(self) -> bool:
        """Whether the frames that were read or written by us are all there are."""
        if not self._looked_through:
            return False
        return not self._pread(FRAME_HEAD_BYTES, self._end).strip(b"\0")

    def read(self, mac: Mac) -> tuple[list[bytes], list[Stray]]:
        """The payloads that were not read yet, and what lies behind the end. With the lock held."""
        found: list[bytes] = []
        while (head := self._pread(FRAME_HEAD_BYTES, self._end)).strip(b"\0"):
            length = FRAME_HEAD_BYTES + _length(head)
            # Whatever it claims, it is no longer than the file.
            data = self._pread(min(length, self._size), self._end)
            payload = self._frame(data, self.frames, mac)
            if payload is None:
                self._looked_through = False
                break
            found.append(payload)
            self._end += length
            self.frames += 1
        if self.frames < self._most:
            raise JournalChanged(self.path, f"frame {self.frames} was there and is not any more")
        if self._looked_through:
            return found, []
        self._looked_through = True
        self.unfinished = self._behind(self._end)
        return found, self._strays(mac) if self.unfinished else []

    def _frame(self, data: bytes, number: int, mac: Mac) -> bytes | None:
        found = self._whole(data, 0)
        if found is None:
            return None
        head, written, payload = found
        if mac(head, payload) != written:
            raise JournalChanged(self.path, f"frame {number} was not written by this home's key")
        if _FRAME.unpack(head)[1] != number:
            raise JournalChanged(self.path, f"frame {number} is not at its place")
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
        # The salt comes first: a frame of a former generation is no frame of this one.
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

    def _behind(self, at: int) -> bool:
        """Whether anything but zeros lies from there on."""
        chunk = bytearray(_CHUNK)  # one for all of it: taking memory costs more than comparing
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
        """Whether three quarters of a large one are used, as far as this process knows."""
        return self._end > LARGE_ROOM * 3 // 4

    # Beside whoever writes, without the lock

    start = START  #: where the first frame lies

    def look(self, number: int, at: int, mac: Mac) -> tuple[bytes, int] | None:
        """The payload of a frame that lies `at` a place, and the place behind it.

        ``None`` if there is none yet, and if the journal is of another generation than `mac`.
        """
        self._require_sound()
        head = self._pread(FRAME_HEAD_BYTES, at)
        if not head.strip(b"\0"):
            return None
        length = FRAME_HEAD_BYTES + _length(head)
        payload = self._frame(self._pread(min(length, self._size), at), number, mac)
        return None if payload is None else (payload, at + length)

    # Writing, with the lock held

    def holds(self, payload_bytes: int) -> bool:
        """Whether an empty one, as long as this is now, has a place for it. Needs no lock."""
        return START + FRAME_HEAD_BYTES + payload_bytes <= self._size

    def fits(self, payload_bytes: int) -> bool:
        """Whether a frame of that size has a place now; makes more room if it may."""
        wanted = self._end + FRAME_HEAD_BYTES + payload_bytes
        busy = self._appended[0] == MANY_FRAMES
        if self._size < LARGE_ROOM and (wanted > self._size or busy):
            self._grow()
        return wanted <= self._size

    def _grow(self) -> None:
        """Lengthen the file with zeros, where the disk has plenty of room for it.

        A sync of bytes within a file's length costs a third less than one that makes the file
        longer, which the file system has to note in a journal of its own. That of the frame for
        which it is done makes the new length durable too.
        """
        before, disk = self._size, os.fstatvfs(self._descriptor)
        if disk.f_bavail * disk.f_frsize < _ROOM_TO_SPARE * LARGE_ROOM:
            return
        try:
            _fill(self._descriptor, before, LARGE_ROOM)
        except OSError:  # a quota
            os.ftruncate(self._descriptor, before)
        else:
            self._lengthened(LARGE_ROOM)

    def append(self, payload: bytes, mac: Mac) -> int:
        """Write a frame that `fits` at the end; returns what to `sync`."""
        generation, durable = self.turn.generation, self._durable
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
        """Say, before a commit, that the database will be another one than others remember."""
        turn = Turn(self.turn.generation, self.turn.turns + 1)
        header = _padded_header(turn.generation, turn.turns, self.salt)
        try:
            os.pwrite(self._descriptor, header, 0)
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.turn, self._header = turn, header

    def empty(self) -> None:
        """Begin anew, when the database durably holds every frame.

        Nothing is synced: until the next frame is, which syncs all of it, the frames that a power
        cut may leave here are in the database already, and are known by that.
        """
        cleared_to = self._size if self.unfinished else self._end
        turn = Turn(self.turn.generation + 1, self.turn.turns + 1)
        try:
            self._begin(turn, cleared_to)
        except OSError as error:
            raise _unusable(self.path, error) from error

    # Without any other lock

    def sync(self, ticket: int) -> None:
        """Return when the frame of `ticket` is on the disk; one sync serves all who wait for it."""
        if ticket <= self._durable[0]:
            return
        with self._syncing:
            if ticket <= self._durable[0]:
                return
            self._sync()

    def settle(self) -> None:
        """Return when all that was written is on the disk, whoever wrote it."""
        with self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._require_sound()
        covered = self._appended
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # The kernel says it once and forgets which pages it lost: nothing written since the
            # last good sync can be believed, and a second try would only look like a success.
            self._failed = _unusable(self.path, error)
            raise self._failed from error
        self._durable = covered

    def _require_sound(self) -> None:
        if self._process != os.getpid():
            raise EvidenceUnavailable(
                f"{self.path} was opened by the process that this one was forked from.",
                remedy="Open the project after the fork, in each process.",
            )
        if self._failed is not None:
            raise self._failed


#: Of this process. A fork shares their descriptors and with them the lock, which then outlives a
#: killed holder for as long as the fork lives: so what it could not use anyway it closes at once.
_opened: weakref.WeakSet[Journal] = weakref.WeakSet()


def _let_go() -> None:
    for journal in _opened:
        journal.close()


os.register_at_fork(after_in_child=_let_go)


def held(path: Path, wait_s: float) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The store {path} is held by another process for more than {wait_s:g} s.",
        remedy="Try again; if it stays, look for a stopped `actum` process.",
    )


def _padded_header(generation: int, turns: int, salt: bytes) -> bytes:
    plain = _HEADER.pack(_MAGIC, VERSION, generation, turns, salt)
    return (plain + _CRC.pack(zlib.crc32(plain))).ljust(START, b"\0")


def _length(head: bytes) -> int:
    """Of the payload, as a frame's head says; 0 if there is no head."""
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
