"""A journal in bad luck: a key that changes, a caller who gives up, a disk that is almost full."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from actum.errors import EvidenceUnavailable
from actum.store import database as database_module
from actum.store import journal as journal_module
from actum.store.database import Database
from actum.store.journal import FIRST_ROOM, Journal

from .factories import (
    RESULT,
    House,
    bad,
    make_contract,
    make_facts,
    make_intent,
    make_plan,
    make_policy,
)


def test_a_rotation_killed_or_cut_off_leaves_no_frame_of_the_key_before(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each emptying there is a kill; after the last sync of the journal, a power cut."""
    house.execute()
    moments: list[Path] = []
    durable: list[bytes] = []
    journal, fdatasync = house.database.journal, os.fdatasync
    empty = journal.empty

    def killed_before() -> None:
        moments.append(house.home.parent / f"killed-{len(moments)}" / ".actum")
        shutil.copytree(house.home, moments[-1])
        empty()

    def noted(descriptor: int) -> None:
        fdatasync(descriptor)
        durable.append(journal.path.read_bytes())

    monkeypatch.setattr(journal, "empty", killed_before)
    monkeypatch.setattr(os, "fdatasync", noted)
    house.rotate()
    monkeypatch.undo()
    moments.append(house.home.parent / "cut" / ".actum")
    shutil.copytree(house.home, moments[-1])
    (moments[-1] / "actum.journal").write_bytes(durable[-1])
    for home in moments:
        fresh = House.open(home)
        fresh.execute()
        assert bad(fresh.verifier.verify_all()) == []
        assert len(fresh.receipts.latest(9)) == 2
        fresh.database.close()


@pytest.mark.parametrize("counted", ["frames", "_appended"])
def test_one_who_gives_up_while_a_frame_is_counted_spoils_nothing(
    house: House, counted: str
) -> None:
    """The bytes are there; their writer does not know it yet."""
    house.execute()

    class GivesUp(Journal):
        armed = False

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if self.armed and name == counted:
                GivesUp.armed = False
                raise KeyboardInterrupt

    journal = house.database.journal
    journal.__class__ = GivesUp
    GivesUp.armed = True
    with pytest.raises(KeyboardInterrupt):
        house.ledger.write_ahead(make_intent())
    house.execute()
    fresh = House.open(house.home)
    assert bad(fresh.verifier.verify_all()) == []
    assert len(fresh.receipts.latest(9)) == 2
    fresh.database.close()


def test_a_large_end_is_kept_where_the_journal_may_not_grow(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_ROOM_TO_SPARE", 2**40)
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    facts = make_facts(intent, opened=opened)
    house.ledger.seal(facts, {**RESULT, "output": "x" * (FIRST_ROOM + 1)})
    known = house.executions.get(facts.execution_id)
    assert known is not None
    assert known.receipt_id == facts.receipt_id
    assert bad(house.verifier.verify_all()) == []


def test_a_large_start_is_kept_where_the_journal_may_not_grow(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_ROOM_TO_SPARE", 2**40)
    contract = make_contract()
    policy = make_policy()
    plan = make_plan(contract, policy, argv=("rg", *(["x" * 100_000] * 10)))
    intent = make_intent(contract, policy=policy, plan=plan)
    house.ledger.write_ahead(intent)
    assert len(house.executions.open_executions()) == 1


def test_a_new_one_for_which_there_is_no_room_is_not_taken_for_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FIRST_ROOM // 2, hard))
    try:
        with pytest.raises(EvidenceUnavailable, match="cannot take more"):
            Journal.open(tmp_path, 5.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    opened = Journal.open(tmp_path, 5.0)
    opened.acquire(5.0)
    opened.release()
    assert (tmp_path / "actum.journal").stat().st_size == FIRST_ROOM
    opened.close()


def test_a_disk_that_fails_twice_keeps_nobody_waiting(house: House) -> None:
    """Nothing can be filed, and a transaction to read in cannot be begun either."""
    house.execute()
    real = house.database._connection

    class Failing:
        def execute(self, sql: str, parameters: object = ()) -> object:
            if sql == "BEGIN IMMEDIATE":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
            return real.execute(sql, parameters)

        def cursor(self) -> object:
            return self

        def close(self) -> None:
            pass

        @property
        def in_transaction(self) -> bool:
            return real.in_transaction

    house.database._connection = Failing()  # type: ignore[assignment]
    with pytest.raises(EvidenceUnavailable, match="cannot take more"):
        house.receipts.latest(1)
    house.database._connection = real
    found = []
    waiting = threading.Thread(target=lambda: found.append(house.receipts.latest(1)), daemon=True)
    waiting.start()
    waiting.join(60)
    assert len(found) == 1


def test_a_killed_writer_whose_fork_lives_on_does_not_keep_the_lock(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors that a fork shares share the lock, too, and it is held until all are closed."""
    house.execute()
    house.database.close()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        opened = Database.open(house.home)
        forked = os.fork()
        if forked == 0:
            os.close(reader)
            signal.pause()
        os.write(writer, b"%d" % forked)
        opened.acquire_write_lock()
        os.kill(os.getpid(), signal.SIGKILL)
    forked = int(os.read(reader, 20))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 2.0)
    try:
        fresh = House.open(house.home)
        fresh.execute()
        assert len(fresh.receipts.latest(9)) == 2
        fresh.database.close()
    finally:
        os.kill(forked, signal.SIGKILL)
        os.close(reader)
        os.close(writer)
