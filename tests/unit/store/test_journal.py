"""The journal's file: whole frames or none, ours or nobody's, and nobody answered too early."""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import kernel
from actum.errors import EvidenceUnavailable
from actum.store import journal as module
from actum.store.journal import FIRST_ROOM, LARGE_ROOM, MANY_FRAMES, Journal, JournalChanged
from common.journals import HEAD, START, places


def mac(head: bytes, payload: bytes) -> bytes:
    return hmac.digest(b"key", head + payload, "sha256")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / ".actum"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def journal(home: Path) -> Iterator[Journal]:
    opened = Journal.open(home, 5.0)
    yield opened
    opened.close()


def lay(journal: Journal, *payloads: bytes) -> int:
    """Write frames as a `Database` would; returns the last one's ticket."""
    journal.acquire(5.0)
    try:
        journal.read(mac)
        ticket = 0
        for payload in payloads:
            assert journal.fits(len(payload))
            ticket = journal.append(payload, mac)
    finally:
        journal.release()
    return ticket


def found(home: Path) -> list[bytes]:
    """Every payload, as a new process reads them."""
    opened = Journal.open(home, 5.0)
    opened.acquire(5.0)
    try:
        return opened.read(mac)[0]
    finally:
        opened.release()
        opened.close()


PAYLOADS = (b"first", b"", b"third" * 1000, bytes(range(256)))


def test_a_new_one_is_private_filled_with_zeros_and_of_one_length(home: Path) -> None:
    os.umask(before := os.umask(0o022))
    Journal.open(home, 5.0).close()
    path = home / "actum.journal"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == FIRST_ROOM
    assert path.stat().st_blocks * 512 >= FIRST_ROOM  # and not full of holes
    assert path.read_bytes()[START:] == bytes(FIRST_ROOM - START)
    assert before == 0o022


def test_what_was_written_is_read_in_order_by_whoever_comes(home: Path, journal: Journal) -> None:
    lay(journal, *PAYLOADS)
    assert found(home) == list(PAYLOADS)
    lay(journal, b"more")
    assert found(home) == [*PAYLOADS, b"more"]
    assert (home / "actum.journal").stat().st_size == FIRST_ROOM


def test_emptying_it_leaves_nothing_that_was_there(home: Path, journal: Journal) -> None:
    lay(journal, *PAYLOADS)
    before = journal.revision
    journal.acquire(5.0)
    journal.empty()
    journal.release()
    assert journal.revision.generation == before.generation + 1
    assert (home / "actum.journal").read_bytes()[START:] == bytes(FIRST_ROOM - START)
    assert not journal.has_frames()
    lay(journal, b"next")
    assert found(home) == [b"next"]


def test_frames_of_a_former_generation_are_none_of_this_one(home: Path, journal: Journal) -> None:
    lay(journal, *PAYLOADS)
    former = (home / "actum.journal").read_bytes()
    journal.acquire(5.0)
    journal.empty()
    journal.release()
    lay(journal, b"new")
    ours = (home / "actum.journal").read_bytes()
    end = places(home)[-1][1]
    # As a process killed while it emptied the file would leave it.
    (home / "actum.journal").write_bytes(ours[:end] + former[end:])
    opened = Journal.open(home, 5.0)
    opened.acquire(5.0)
    assert opened.read(mac) == ([b"new"], [])
    assert opened.unfinished
    opened.empty()
    assert (home / "actum.journal").read_bytes()[START:].strip(b"\0") == b""
    opened.release()
    opened.close()


def test_a_cut_at_every_byte_leaves_whole_frames_only(home: Path, journal: Journal) -> None:
    payloads = [b"first", b"second" * 9, b"third"]
    lay(journal, *payloads)
    whole = (home / "actum.journal").read_bytes()
    ends = [end for _, end in places(home)]
    journal.close()
    for cut in range(START, ends[-1] + 1):
        (home / "actum.journal").write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        # A zero that was cut off is the zero that stands there.
        expected = [
            payload
            for payload, end in zip(payloads, ends, strict=True)
            if whole[cut:end].strip(b"\0") == b""
        ]
        assert found(home) == expected, cut


@pytest.mark.parametrize("tidy", [False, True], ids=["bytes alone", "with the checksum"])
def test_a_changed_byte_anywhere_is_never_believed(
    home: Path, journal: Journal, tidy: bool
) -> None:
    payloads = [b"first", b"second", b"third"]
    for payload in payloads:
        journal.sync(lay(journal, payload))
    whole = (home / "actum.journal").read_bytes()
    begin, end = places(home)[1]
    salt = whole[28:44]
    journal.close()
    for at in range(begin, end):
        if tidy and begin + 48 <= at < begin + HEAD:
            continue  # the checksum itself
        changed = bytearray(whole)
        changed[at] ^= 1
        if tidy:
            body = bytes(changed[begin + HEAD : end])
            over_head = zlib.crc32(bytes(changed[begin : begin + 48]), zlib.crc32(salt))
            struct.pack_into("<I", changed, begin + 48, zlib.crc32(body, over_head))
        (home / "actum.journal").write_bytes(changed)
        opened = Journal.open(home, 5.0)
        opened.acquire(5.0)
        try:
            read, strays = opened.read(mac)
        except JournalChanged as error:
            assert "frame 1" in str(error)
            assert tidy
        else:
            # The end is before it, and the third one says that it was on the disk.
            assert read == [b"first"]
            assert [(each.number, each.durable) for each in strays] == [(2, 2)]
            assert opened.unfinished
        opened.release()
        opened.close()


def test_a_frame_at_another_place_is_not_taken(home: Path, journal: Journal) -> None:
    lay(journal, b"one", b"two")
    whole = (home / "actum.journal").read_bytes()
    (first, middle), (_, end) = places(home)
    swapped = whole[:first] + whole[middle:end] + whole[first:middle] + whole[end:]
    (home / "actum.journal").write_bytes(swapped)
    with pytest.raises(JournalChanged, match="frame 0 is at another position"):
        found(home)


def test_a_frame_that_claims_to_be_huge_is_no_frame(home: Path, journal: Journal) -> None:
    lay(journal, b"one")
    with (home / "actum.journal").open("r+b") as file:
        file.seek(START + 12)
        file.write(struct.pack("<I", 0xFFFF_FFFF))
    assert found(home) == []


@pytest.mark.parametrize(
    ("offset", "content", "said"),
    [
        (0, b"SQLite f", "has no journal header"),
        (8, struct.pack("<I", 2), "version 2; this Actum knows version 1.*Upgrade"),
        (12, b"\x09", "header is not what was written"),
        (28, b"????", "header is not what was written"),
        (0, bytes(START), "its header is gone"),
    ],
)
def test_a_header_that_is_not_ours_is_refused_and_left_alone(
    home: Path, journal: Journal, offset: int, content: bytes, said: str
) -> None:
    lay(journal, b"one")
    with (home / "actum.journal").open("r+b") as file:
        file.seek(offset)
        file.write(content)
    before = (home / "actum.journal").read_bytes()
    for attempt in (lambda: Journal.open(home, 5.0), lambda: journal.acquire(5.0)):
        with pytest.raises(EvidenceUnavailable, match=said):
            attempt()
    assert (home / "actum.journal").read_bytes() == before


@pytest.mark.parametrize("made", [b"", bytes(100), bytes(FIRST_ROOM)], ids=len)
def test_one_whose_maker_was_killed_is_made_again(home: Path, made: bytes) -> None:
    (home / "actum.journal").write_bytes(made)
    opened = Journal.open(home, 5.0)
    lay(opened, b"one")
    opened.close()
    assert found(home) == [b"one"]
    assert (home / "actum.journal").stat().st_size == FIRST_ROOM


def test_a_link_a_folder_or_a_pipe_in_its_place_is_refused(home: Path, tmp_path: Path) -> None:
    path = home / "actum.journal"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvidenceUnavailable, match="cannot be written"):
        Journal.open(home, 5.0)
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()
    path.mkdir()
    with pytest.raises(EvidenceUnavailable, match="cannot be written"):
        Journal.open(home, 5.0)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(EvidenceUnavailable, match="not a regular file"):
        Journal.open(home, 5.0)


@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "linked", "cut short"])
def test_one_that_is_taken_away_under_us_is_missed(home: Path, journal: Journal, how: str) -> None:
    lay(journal, b"one")
    path, away = home / "actum.journal", home / "away"
    match how:
        case "removed":
            path.unlink()
        case "moved":
            path.rename(away)
        case "replaced":
            away.write_bytes(path.read_bytes())
            away.rename(path)
        case "linked":
            path.rename(away)
            path.symlink_to(away)
        case "cut short":
            os.truncate(path, START)
    with pytest.raises(JournalChanged, match="Restore the home"):
        journal.acquire(5.0)
    with pytest.raises(JournalChanged):
        journal.has_frames()


def test_a_process_that_was_forked_off_may_not_use_it(journal: Journal) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            journal.acquire(5.0)
        except EvidenceUnavailable as error:
            os._exit(7 if "after the fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    lay(journal, b"ours")


def _alternate(home: Path, name: bytes, turns: int, barrier: Any) -> None:
    journal = Journal.open(home, 30.0)
    barrier.wait()
    for number in range(turns):
        journal.sync(lay(journal, b"%s %d" % (name, number)))
    journal.close()


@pytest.mark.parametrize("writers", [2, 8])
def test_processes_that_write_at_once_lose_nothing(home: Path, writers: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(writers)
    processes = [
        spawn.Process(target=_alternate, args=(home, b"%d" % number, 40, barrier))
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    names = [payload.split()[0] for payload in found(home)]
    for number in range(writers):
        own = [payload for payload in found(home) if payload.split()[0] == b"%d" % number]
        assert own == [b"%d %d" % (number, each) for each in range(40)]
    assert len(names) == 40 * writers


def _write_until_killed(home: Path, told: int) -> None:
    journal = Journal.open(home, 30.0)
    for number in range(10_000):
        content = hashlib.sha256(b"%d" % number).digest() * 500  # several pages
        journal.acquire(30.0)
        journal.read(mac)
        if journal.unfinished or not journal.fits(len(content) + 20):
            journal.empty()
        ticket = journal.append(b"%d %d " % (os.getpid(), number) + content, mac)
        journal.release()
        journal.sync(ticket)
        os.write(told, b".")


@pytest.mark.parametrize("writers", [2, 8])
def test_killing_writers_leaves_whole_frames_and_a_journal_that_goes_on(
    home: Path, writers: int
) -> None:
    Journal.open(home, 5.0).close()
    for _ in range(3):
        ends = []
        for _ in range(writers):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    _write_until_killed(home, writer)
                finally:
                    os._exit(1)
            os.close(writer)
            ends.append((pid, reader))
        for pid, reader in ends:
            assert os.read(reader, 1)  # it has written at least once
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
            os.close(reader)
        for payload in found(home):
            _, number, content = payload.split(b" ", 2)
            assert content == hashlib.sha256(number).digest() * 500
    opened = Journal.open(home, 5.0)
    lay(opened, b"and on") if not _unfinished(opened) else None
    opened.close()


def _unfinished(journal: Journal) -> bool:
    journal.acquire(5.0)
    journal.read(mac)
    unfinished = journal.unfinished
    journal.release()
    return unfinished


def test_threads_that_wait_at_once_share_a_sync_and_none_returns_early(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    fdatasync = os.fdatasync
    lock, begun, running = threading.Lock(), threading.Event(), threading.Event()
    covered: list[int] = []

    def slow(descriptor: int) -> None:
        frames = journal._appended[0]
        begun.set()
        running.wait(60)
        fdatasync(descriptor)
        covered.append(frames)

    monkeypatch.setattr(os, "fdatasync", slow)
    returned: list[tuple[int, int]] = []

    def write(number: int) -> None:
        with lock:
            ticket = lay(journal, b"%d" % number)
        journal.sync(ticket)
        returned.append((ticket, covered[-1]))

    first = threading.Thread(target=write, args=(0,))
    first.start()
    assert begun.wait(60)
    others = [threading.Thread(target=write, args=(number,)) for number in range(1, 9)]
    for each in others:
        each.start()
    while journal._appended[0] < 9:  # all have written, one sync is under way
        threading.Event().wait(0.01)
    running.set()
    for each in (first, *others):
        each.join()
    assert covered == [1, 9]  # the second served the eight that came during the first
    assert len(returned) == 9
    assert all(durable >= ticket for ticket, durable in returned)


_FAILING = """
import hmac, sys
from pathlib import Path
from actum.store.journal import Journal
from actum.errors import EvidenceUnavailable
mac = lambda head, payload: hmac.digest(b"key", head + payload, "sha256")
journal = Journal.open(Path(sys.argv[1]), 5.0)
def lay(payload):
    journal.acquire(5.0)
    try:
        journal.read(mac)
        ticket = journal.append(payload, mac)
    finally:
        journal.release()
    journal.sync(ticket)
lay(b"good")
for _ in range(3):
    try:
        lay(b"lost")
    except EvidenceUnavailable as error:
        print(error.code, error)
    else:
        sys.exit("it was believed")
"""


def test_a_sync_that_fails_once_is_final_for_its_process(home: Path) -> None:
    """The kernel reports a lost page once: the second sync would succeed without it."""
    ended = subprocess.run(
        [
            *("strace", "-f", "-o", "/dev/null"),
            *("-e", "inject=fdatasync:error=EIO:when=2"),
            *(sys.executable, "-c", _FAILING, str(home)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.count("AUDIT_LOG_FAILED") == 3
    assert "kernel log" in ended.stdout
    assert found(home)[0] == b"good"
    assert len(found(home)) == 2  # after the failure nothing more was written


def test_a_write_that_fails_half_way_is_no_frame(home: Path, journal: Journal) -> None:
    lay(journal, b"one")
    end = places(home)[-1][1]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (end + 100, hard))
    try:
        with pytest.raises(EvidenceUnavailable, match="cannot take more"):
            lay(journal, b"two" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found(home) == [b"one"]
    journal.acquire(5.0)
    assert journal.read(mac) == ([], [])
    assert journal.unfinished
    journal.release()


def test_one_that_is_used_a_lot_gets_more_room(home: Path, journal: Journal) -> None:
    for _ in range(MANY_FRAMES):
        lay(journal, b"x")
    assert (home / "actum.journal").stat().st_size == FIRST_ROOM
    lay(journal, b"x")
    path = home / "actum.journal"
    assert path.stat().st_size == LARGE_ROOM
    assert path.stat().st_blocks * 512 >= LARGE_ROOM
    assert len(found(home)) == MANY_FRAMES + 1


def test_a_disk_with_little_room_keeps_it(
    home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROOM_TO_SPARE", 2**40)
    for _ in range(MANY_FRAMES + 2):
        lay(journal, b"x")
    assert (home / "actum.journal").stat().st_size == FIRST_ROOM
    journal.acquire(5.0)
    assert not journal.fits(FIRST_ROOM)
    journal.release()


def test_a_quota_takes_the_room_away_again(home: Path, journal: Journal) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FIRST_ROOM + 10_000, hard))
    try:
        for number in range(MANY_FRAMES + 2):
            lay(journal, b"%d" % number)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (home / "actum.journal").stat().st_size == FIRST_ROOM
    assert found(home) == [b"%d" % number for number in range(MANY_FRAMES + 2)]


def test_one_that_is_closed_says_so(journal: Journal) -> None:
    lay(journal, b"one")
    journal.close()
    journal.close()
    for use in (journal.has_frames, lambda: journal.acquire(5.0)):
        with pytest.raises(EvidenceUnavailable, match=r"is closed.*Open the project again"):
            use()


def test_a_disk_that_cannot_be_read_is_a_fault_of_ours(journal: Journal) -> None:
    lay(journal, b"one")
    kept = os.dup(journal._descriptor)
    other = os.open(journal.path, os.O_WRONLY)  # of which the kernel reads nothing
    os.dup2(other, journal._descriptor)
    with pytest.raises(EvidenceUnavailable, match="kernel log"):
        journal.acquire(5.0)
    os.dup2(kept, journal._descriptor)
    os.close(other)
    os.close(kept)
    lay(journal, b"two")


def test_looking_behind_the_end_costs_no_more_than_what_lies_there(
    home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that knows how frames are made, but not the salt, has left a file full of heads."""
    heads = struct.pack("<4sIII", b"\x97ACT", 1, 1, 20_000) * 4_000
    lay(journal, heads)
    end = places(home)[-1][1]
    with (home / "actum.journal").open("r+b") as file:
        file.seek(end - 4)
        file.write(bytes(4))
    looked_at = 0

    def counted(data: bytes, *start: int) -> int:
        nonlocal looked_at
        looked_at += len(data)
        return zlib.crc32(data, *start)

    watched = type(zlib)("zlib")
    watched.__dict__.update(zlib.__dict__, crc32=counted)
    monkeypatch.setattr(module, "zlib", watched)
    assert found(home) == []
    assert looked_at < 10 * FIRST_ROOM


def test_marks_of_two_generations_differ(home: Path, journal: Journal) -> None:
    marks = set()
    for _ in range(4):
        lay(journal, b"one")
        marks.add((home / "actum.journal").read_bytes()[START : START + 4])
        journal.acquire(5.0)
        journal.empty()
        journal.release()
    assert len(marks) == 4


_TWO_FRAMES = """
import hmac, sys
from pathlib import Path
from actum.store.journal import MANY_FRAMES, Journal

mac = lambda head, payload: hmac.digest(b"key", head + payload, "sha256")
journal = Journal.open(Path(sys.argv[1]), 5.0)
for number in range(MANY_FRAMES + 2):
    journal.acquire(5.0)
    journal.read(mac)
    assert journal.fits(5)
    ticket = journal.append(b"frame", mac)
    journal.release()
    journal.sync(ticket)
"""


def test_what_would_make_each_sync_dearer_is_not_done(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "strace"
    calls = "%stat,%lstat,%fstat,pwrite64,fdatasync"
    ended = subprocess.run(
        [
            *("strace", "-y", "-s", "0", "-o", str(log), "-e", f"trace={calls}"),
            *(sys.executable, "-c", _TWO_FRAMES, str(home)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    _, *lines = [line for line in log.read_text().splitlines() if "actum.journal" in line]
    looks = [line for line in lines if "stat" in line.split("(")[0]]
    assert len(looks) == MANY_FRAMES + 3
    for line in looks:  # by name, and nobody asks when it was changed
        assert line.startswith("statx(AT_FDCWD")
        assert "AT_SYMLINK_NOFOLLOW, STATX_INO|STATX_SIZE," in line
    written = [int(line.rsplit("= ", 1)[1]) for line in lines if line.startswith("pwrite")]
    assert sum(written) >= LARGE_ROOM  # it grew, too
    assert max(written) <= 16_384
    assert sum(line.startswith("fdatasync") for line in lines) == MANY_FRAMES + 2


def test_who_may_not_ask_without_the_times_asks_for_them(home: Path, journal: Journal) -> None:
    asked = journal._named
    path = home / "actum.journal"
    expected = kernel.place(path.stat())
    assert expected[1:] == (path.stat().st_ino, FIRST_ROOM)
    assert asked.look() == expected
    asked._statx = lambda *_: -1  # as a filter of system calls would answer
    assert asked.look() == expected
    path.rename(home / "away")
    path.symlink_to(home / "away")
    assert asked.look() != expected
    path.unlink()
    with pytest.raises(FileNotFoundError):
        asked.look()
