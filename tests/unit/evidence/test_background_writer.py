"""Filing while nobody is served: it gives way, it loses nothing, and nothing comes twice."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from actum.errors import EvidenceUnavailable
from actum.evidence import log as log_module
from actum.evidence.background_writer import MANY, SOME, TOO_MANY, BackgroundWriter
from actum.evidence.batch import Batch
from actum.evidence.log import Log
from actum.store import note
from actum.store.journal import Journal
from common.journals import emptied, filed, lying, rewrite

from .factories import RESULT, House, bad, make_facts, make_intent

#: Longer than anything here takes; only a test that fails waits for it.
_PATIENCE_S = 60


def _frames(house: House) -> int:
    return len(lying(house.home, house.keyring.signer))


def _filed(house: House) -> int:
    return filed(house.database)


def _execute(house: House, count: int) -> None:
    for _ in range(count):
        house.execute()


def _require_sound(house: House, receipts: int) -> None:
    assert len(house.receipts.latest(10 * receipts)) == receipts
    assert len(house.audit()) == 3 * receipts
    assert bad(house.verifier.verify_all()) == []


def test_some_are_filed_and_fewer_are_left_alone(house: House) -> None:
    background_writer = house.ledger.background_writer
    _execute(house, SOME - 1)
    background_writer.work()
    assert (_filed(house), _frames(house)) == (0, 2 * SOME - 2)
    house.execute()
    background_writer.work()
    assert (_filed(house), _frames(house)) == (SOME, 0)
    assert (house.home / "actum.journal").read_bytes()[64:].strip(b"\0") == b""
    checkpoints = house.database.rows("SELECT size FROM checkpoints")
    assert checkpoints == [(3 * SOME,)]
    house.execute()
    _require_sound(house, SOME + 1)


def test_a_journal_that_is_almost_full_of_something_else_is_filed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of the pure plane are records and nothing else, thousands of them."""
    log, portions = house.ledger.log, []
    write_frames = log_module.write_frames

    def counted(cursor: Any, end: Any, lying: Any) -> Any:
        portions.append(len(lying))
        return write_frames(cursor, end, lying)

    monkeypatch.setattr(log_module, "write_frames", counted)
    written = 0
    house.ledger.background_writer.arrive()  # it does not wait for him, either
    while not log.almost_full:
        assert not house.ledger.background_writer.work()
        with log.entry() as entry:
            entry.append({"kind": "ACTION", "about": "x" * 16_000})
        written += 1
    assert portions == []
    assert house.ledger.background_writer.work()
    assert not log.almost_full
    assert _frames(house) == 0
    assert sum(portions) == written
    assert max(portions) == 128  # never so many that readers would wait for long
    assert len(house.audit()) == written
    assert bad(house.verifier.verify_all()) == []


def test_one_that_runs_is_filed_and_sealed_all_the_same(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    _execute(house, SOME)
    house.ledger.background_writer.work()
    assert _frames(house) == 0
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    _require_sound(house, SOME + 1)


def test_it_waits_while_somebody_is_served(house: House) -> None:
    background_writer = house.ledger.background_writer
    _execute(house, SOME)
    background_writer.arrive()
    background_writer.work()
    assert (_filed(house), _frames(house)) == (0, 2 * SOME)
    background_writer.leave()
    background_writer.stop()  # it may have been at work already
    _require_sound(house, SOME)


def test_it_does_not_wait_for_ever(house: House) -> None:
    background_writer = house.ledger.background_writer
    _execute(house, MANY)
    background_writer.arrive()
    background_writer.work()
    assert (_filed(house), _frames(house)) == (MANY, 0)


@pytest.mark.parametrize("served", [False, True])
def test_nobody_who_comes_later_waits_for_an_emptied_journal_to_reach_the_disk(
    house: House, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    background_writer, journal, fdatasync = (
        house.ledger.background_writer,
        house.database.journal,
        os.fdatasync,
    )
    _execute(house, MANY)
    synced: list[bytes] = []

    def watched(descriptor: int) -> None:
        synced.append(journal.path.read_bytes()[64:].strip(b"\0"))
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", watched)
    if served:  # he has to sync for himself, and would wait for two
        background_writer.arrive()
    assert background_writer.work()
    assert _frames(house) == 0
    assert synced == ([] if served else [b""])


def test_it_stops_between_two_frames_and_goes_on_where_it_was(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look = Journal.read_frame

    def counted(self: Journal, number: int, *rest: Any) -> Any:
        looked.append(number)
        return look(self, number, *rest)

    monkeypatch.setattr(Journal, "read_frame", counted)
    _execute(house, SOME)
    background_writer: BackgroundWriter

    def pause(_seconds: float) -> None:
        if len(looked) == 8:  # two steps of four frames
            background_writer.arrive()

    background_writer = BackgroundWriter(house.database, house.ledger.log, pause)
    background_writer.work()
    assert looked == [*range(8)]
    assert _filed(house) == 0
    background_writer._served.pop()
    background_writer.work()
    frames = [number for number in looked if number < 2 * SOME]
    assert frames == [*range(2 * SOME)]
    assert _filed(house) == SOME
    _require_sound(house, SOME)


def _during(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Do something while the transaction is open that the clerk files in, once."""
    write_frames = log_module.write_frames

    def slow(*given: Any) -> Any:
        filed = write_frames(*given)
        if threading.current_thread().name != "meanwhile" and not done:
            done.append(True)
            meanwhile()
        return filed

    done: list[bool] = []
    monkeypatch.setattr(log_module, "write_frames", slow)


def _in_a_thread(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        thread = threading.Thread(target=work, name="meanwhile", daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()

    return run


@pytest.mark.parametrize("few", [1, 20])
def test_nobody_waits_for_it(house: House, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Executions start and end, here and in another process, while it has a transaction open."""
    other = House.open(house.home)
    executed = _in_a_thread(lambda: (_execute(house, few), _execute(other, few))[0])
    _during(monkeypatch, executed)
    _execute(house, SOME)
    house.ledger.background_writer.work()
    assert _filed(house) == SOME + 2 * few
    assert _frames(house) == 0
    _require_sound(house, SOME + 2 * few)
    _require_sound(other, SOME + 2 * few)
    other.database.close()


def test_who_reads_meanwhile_waits_and_finds_everything(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    reader = threading.Thread(
        target=lambda: found.append(len(house.receipts.latest(99))), name="meanwhile"
    )
    _during(monkeypatch, reader.start)
    _execute(house, SOME)
    house.ledger.background_writer.work()
    reader.join(_PATIENCE_S)
    assert found == [SOME]
    _require_sound(house, SOME)


def test_what_others_filed_meanwhile_is_not_filed_twice(house: House) -> None:
    other = House.open(house.home)
    _execute(house, SOME)
    steps: list[float] = []
    background_writer: BackgroundWriter

    def pause(seconds: float) -> None:
        steps.append(seconds)
        if len(steps) == 7:
            assert len(other.receipts.latest(99)) == SOME  # which empties the journal
            _execute(other, 3)

    background_writer = BackgroundWriter(house.database, house.ledger.log, pause)
    background_writer.work()
    assert _filed(house) == SOME
    _execute(house, SOME)
    background_writer.work()
    _require_sound(house, 2 * SOME + 3)
    other.database.close()


def test_another_key_that_comes_meanwhile_signs_what_is_its_own(house: House) -> None:
    other = House.open(house.home)
    _execute(house, SOME)
    before = house.keyring.signer.keyid
    steps: list[float] = []

    def pause(seconds: float) -> None:
        steps.append(seconds)
        if len(steps) == 7:
            other.rotate()
            _execute(other, SOME)

    background_writer = BackgroundWriter(house.database, house.ledger.log, pause)
    background_writer.work()
    _execute(house, SOME)
    background_writer.work()
    again = House.open(house.home)
    assert bad(again.verifier.verify_all()) == []
    signed_by = [
        kept.envelope["signatures"][0]["keyid"]  # type: ignore[index, call-overload]
        for kept in again.receipts.latest(99)
    ]
    heir = again.keyring.signer.keyid
    assert signed_by == [heir] * (2 * SOME) + [before] * SOME
    newest = note.parse(again.ledger.log.checkpoint() or "")
    assert note.verify(newest, again.keyring.trusted.values()) == (heir,)
    for each in (other, again):
        each.database.close()


def test_what_others_added_before_they_could_empty_the_journal_is_not_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, finish = House.open(house.home), Log.finish

    def stopped(_journal: Journal) -> None:
        raise KeyboardInterrupt

    def too_late(log: Log, batch: Batch) -> None:
        assert batch.ready == []  # all of it is filed, and the journal is to be emptied
        with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
            interrupted.setattr(Journal, "empty", stopped)
            interrupted.setattr(Log, "finish", finish)
            other.ledger.malformed(b"{", datetime.now(UTC))
        finish(log, batch)

    _execute(house, SOME)
    monkeypatch.setattr(Log, "finish", too_late)
    house.ledger.background_writer._step()  # which only begins
    while house.ledger.background_writer._batch is not None:
        house.ledger.background_writer._step()
    house.execute()
    assert len(house.audit()) == 3 * SOME + 1 + 3
    assert len(house.receipts.latest(99)) == SOME + 1
    assert bad(house.verifier.verify_all()) == []
    other.database.close()


def _full(*_given: object) -> Any:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def test_what_it_cannot_file_stays_and_is_told_to_whoever_has_to(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    background_writer = house.ledger.background_writer
    with monkeypatch.context() as broken:
        broken.setattr(log_module, "write_frames", _full)
        _execute(house, SOME)
        background_writer.work()
        assert (_filed(house), _frames(house)) == (0, 2 * SOME)
        _execute(house, TOO_MANY - SOME)  # goes on being put on record
        with pytest.raises(EvidenceUnavailable, match="cannot take more records"):
            house.execute()
    background_writer.work()  # it does not try the same again
    assert _filed(house) == 0
    house.execute()
    assert _filed(house) == TOO_MANY
    background_writer.arrive()
    background_writer.leave()
    _execute(house, SOME)
    background_writer.work()
    assert _filed(house) == TOO_MANY + SOME + 1
    _require_sound(house, TOO_MANY + SOME + 1)


def test_what_was_changed_is_neither_filed_nor_thrown_away(house: House) -> None:
    _execute(house, SOME)
    rewrite(house.home, 3, lambda payload: payload[:-1] + b"?", tidy=True)
    house.ledger.background_writer.work()
    assert _filed(house) == 0
    with pytest.raises(EvidenceUnavailable, match="frame 3 was not written by this home's key"):
        house.receipts.latest(1)


def test_what_was_taken_away_is_missed(house: House) -> None:
    _execute(house, SOME)
    path = house.home / "actum.journal"
    content = path.read_bytes()
    with path.open("r+b") as file:  # the last frames, zeros in their place
        end = len(content.rstrip(b"\0"))
        file.seek(end // 2)
        file.write(bytes(end - end // 2))
    house.ledger.background_writer.work()
    with pytest.raises(EvidenceUnavailable, match="was changed"):
        house.receipts.latest(1)


# Its thread


def _serve(house: House, count: int) -> None:
    """As the engine does."""
    for _ in range(count):
        house.ledger.background_writer.arrive()
        house.execute()
        house.ledger.background_writer.leave()


def test_its_thread_files_when_the_last_one_has_left(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    background_writer, done = house.ledger.background_writer, emptied(monkeypatch)
    _serve(house, SOME - 1)
    assert background_writer._worker is None
    background_writer.arrive()  # another request is still there
    _serve(house, 1)
    assert background_writer._worker is None
    background_writer.leave()
    assert done.wait(_PATIENCE_S)
    assert _filed(house) == SOME
    worker = background_writer._worker
    assert worker is not None
    assert worker.daemon
    done.clear()
    _serve(house, SOME)
    assert done.wait(_PATIENCE_S)
    assert background_writer._worker is worker
    house.database.close()
    assert not worker.is_alive()


def test_where_no_thread_is_to_be_had_everybody_is_served_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    background_writer, done = house.ledger.background_writer, emptied(monkeypatch)

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refused)
        _serve(house, SOME + 1)
    assert (background_writer._worker, _filed(house)) == (None, 0)
    _serve(house, 1)  # now there is one
    assert done.wait(_PATIENCE_S)
    house.database.close()
    assert _filed(house) == SOME + 2


def test_pauses_that_are_too_short_are_tried_less_and_less(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls one after the other would wake it each time, for nothing."""
    background_writer = house.ledger.background_writer
    called: list[bool] = []
    _execute(house, SOME)

    def leaves_until_called() -> int:
        count = 0
        while not called:
            count += 1
            background_writer.arrive()
            background_writer.leave()
        called.clear()
        return count

    def too_late() -> None:
        background_writer.arrive()
        background_writer._calls.put(True)
        background_writer._calls.put(False)  # its thread, as far as this one call goes
        background_writer._work()
        background_writer._served.pop()

    monkeypatch.setattr(background_writer, "_call", lambda: called.append(True))
    found = [leaves_until_called()]
    for _ in range(4):
        too_late()
        found.append(leaves_until_called())
    assert found == [1, 2, 4, 8, 8]
    too_late()
    _execute(house, MANY - SOME)  # now it does not give way any more
    assert leaves_until_called() == 1
    assert background_writer.work()
    assert _filed(house) == MANY


class _Silence:
    """No calls come and time passes; a wait without end is ended."""

    def get(self, *, timeout: float | None) -> bool:
        if timeout is None:
            return False
        raise queue.Empty


def test_the_last_of_many_is_not_passed_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    background_writer = house.ledger.background_writer
    _execute(house, SOME)
    monkeypatch.setattr(background_writer, "_calls", _Silence())
    background_writer._deferrals = background_writer._skips = 3
    _serve(house, 1)  # for whom it is not called
    background_writer._work()
    assert _filed(house) == SOME + 1


def test_while_nobody_leaves_it_does_not_look_again_and_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    background_writer = house.ledger.background_writer
    background_writer.arrive()  # with a tool that runs for an hour
    _execute(house, SOME)
    monkeypatch.setattr(background_writer, "_calls", _Silence())
    background_writer._deferrals = background_writer._skips = 3
    background_writer._work()
    assert _filed(house) == 0
    called: list[bool] = []
    monkeypatch.setattr(background_writer, "_call", lambda: called.append(True))
    background_writer.leave()
    assert called == [True]


def test_closing_waits_for_it_and_files_the_rest(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def blocked() -> None:
        inside.set()
        assert go_on.wait(_PATIENCE_S)

    _during(monkeypatch, blocked)
    _serve(house, SOME)
    assert inside.wait(_PATIENCE_S)
    house.execute()
    closing = [
        threading.Thread(target=house.database.close, name="meanwhile", daemon=True)
        for _ in range(2)  # of whom the second waits, too
    ]
    for thread in closing:
        thread.start()
    closing[1].join(0.2)
    assert closing[1].is_alive()
    go_on.set()
    for thread in closing:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()
    worker = house.ledger.background_writer._worker
    assert worker is not None
    assert not worker.is_alive()
    assert (_filed(house), _frames(house)) == (SOME + 1, 0)
    again = House.open(house.home)
    _require_sound(again, SOME + 1)
    again.database.close()


def test_nothing_is_begun_when_it_is_closed(house: House) -> None:
    _execute(house, SOME)
    house.ledger.background_writer.stop()
    house.ledger.background_writer.arrive()
    house.ledger.background_writer.leave()
    assert house.ledger.background_writer._worker is None
    assert _filed(house) == 0


def test_a_fork_waits_for_its_transaction(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one, and its locks, would be in the fork for good: not even closing would end."""
    inside, forked = threading.Event(), threading.Event()

    def until_forked() -> None:
        inside.set()
        forked.wait(0.5)  # it is not: so this passes

    _during(monkeypatch, until_forked)
    _serve(house, SOME)
    assert inside.wait(_PATIENCE_S)
    child = os.fork()
    if child == 0:
        second = house.database._background
        code = 0 if second is not None and not second.in_transaction else 1
        house.database.close()
        os._exit(code)
    forked.set()
    assert os.waitpid(child, 0)[1] == 0
    house.ledger.background_writer.stop()
    _require_sound(house, SOME)


# Killed while it files

_MOMENTS = {
    "before its commit": (log_module, "_insert_checkpoint"),
    "between commit and emptying": (Log, "finish"),
    "when it is emptied": (Log, "_ends_at"),
}


def _killed_at(home: Path, owner: Any, name: str, more: int) -> None:
    house, other = House.open(home), House.open(home)
    _execute(house, SOME)
    done = getattr(owner, name)

    def kill(*given: Any) -> None:
        if name == "_insert_checkpoint":
            done(*given)
        _execute(other, more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, kill)
    house.ledger.background_writer.work()


@pytest.mark.parametrize(
    ("moment", "more"),
    [
        ("before its commit", 0),
        ("before its commit", 2),
        ("between commit and emptying", 0),
        ("between commit and emptying", 2),
        ("when it is emptied", 0),  # nobody else can be writing then
    ],
)
def test_killed_while_it_files_loses_nothing_and_repeats_nothing(
    tmp_path: Path, moment: str, more: int
) -> None:
    home = tmp_path / ".actum"
    House.open(home).database.close()
    owner, name = _MOMENTS[moment]
    process = get_context("fork").Process(target=_killed_at, args=(home, owner, name, more))
    process.start()
    process.join(_PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    house = House.open(home)
    assert _filed(house) == (0 if moment == "before its commit" else SOME)
    _require_sound(house, SOME + more)
    _execute(house, SOME)
    house.ledger.background_writer.work()
    _require_sound(house, 2 * SOME + more)
    house.database.close()
