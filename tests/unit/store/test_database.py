"""The SQLite file: private, durable, shared safely, and clear about its failures."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actum.errors import EvidenceUnavailable, Refused
from actum.store.database import Database
from actum.store.migrations import MIGRATIONS

AUDIT = "INSERT INTO audit (record, nodes) VALUES (?, x'')"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".actum"


def _count(database: Database) -> int:
    row = database.row("SELECT count(*) FROM audit")
    assert row is not None
    return int(row[0])


def test_a_new_file_is_private_in_wal_mode_and_fully_synced(home: Path) -> None:
    database = Database.open(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for file in home.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert database.row("PRAGMA journal_mode") == ("wal",)
    assert database.row("PRAGMA synchronous") == (2,)
    assert database.row("PRAGMA foreign_keys") == (1,)
    assert database.row("PRAGMA user_version") == (len(MIGRATIONS),)
    database.close()


def test_opening_again_keeps_what_is_there(home: Path) -> None:
    first = Database.open(home)
    with first.transaction() as cursor:
        cursor.execute(AUDIT, (b"one",))
    first.close()
    second = Database.open(home, create=False)
    assert _count(second) == 1
    second.close()


def test_two_in_one_process_keep_their_file_from_being_folded_away_by_others(home: Path) -> None:
    """Of a file's locks a process loses all, when it closes any descriptor of that file."""
    code = (
        "import sys; from actum.store.database import Database; Database.open(sys.argv[1]).close()"
    )
    first = Database.open(home)
    second = Database.open(home)
    subprocess.run([sys.executable, "-c", code, home], check=True)
    with first.transaction() as cursor:
        cursor.execute(AUDIT, (b"one",))
    fresh = sqlite3.connect(f"{(home / 'actum.db').as_uri()}?mode=ro", uri=True)
    assert fresh.execute("SELECT count(*) FROM audit").fetchone() == (1,)
    for each in (first, second, fresh):
        each.close()
    again = Database.open(home)
    assert _count(again) == 1
    again.close()


def test_a_block_that_raises_leaves_nothing(home: Path) -> None:
    database = Database.open(home)
    with pytest.raises(ZeroDivisionError), database.transaction() as cursor:
        cursor.execute(AUDIT, (b"one",))
        raise ZeroDivisionError
    assert _count(database) == 0
    with database.transaction() as cursor:  # and the next one is not in the way of it
        cursor.execute(AUDIT, (b"two",))
    assert database.rows("SELECT seq FROM audit") == [(1,)]
    database.close()


def test_audit_records_cannot_be_changed_or_removed_through_sql(home: Path) -> None:
    database = Database.open(home)
    with database.transaction() as cursor:
        cursor.execute(AUDIT, (b"one",))
    for statement in ("UPDATE audit SET record = x'00'", "DELETE FROM audit"):
        refused = pytest.raises(EvidenceUnavailable, match="append-only")
        with refused, database.transaction() as cursor:
            cursor.execute(statement)
    assert _count(database) == 1
    database.close()


def test_many_threads_share_one_database(home: Path) -> None:
    database = Database.open(home)

    def write(number: int) -> None:
        with database.transaction() as cursor:
            before = cursor.execute("SELECT count(*) FROM audit").fetchone()[0]
            cursor.execute(AUDIT, (b"%d" % number,))
            after = cursor.execute("SELECT count(*) FROM audit").fetchone()[0]
            assert after == before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(100)))
    assert database.rows("SELECT seq FROM audit ORDER BY seq") == [(n,) for n in range(1, 101)]
    database.close()


def _write(home: Path, number: int) -> None:
    database = Database.open(home)  # all create and migrate the same file at once
    for _ in range(25):
        with database.transaction() as cursor:
            seen = cursor.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()[0]
            cursor.execute(
                "INSERT INTO audit (seq, record, nodes) VALUES (?, ?, x'')",
                (seen + 1, b"%d" % number),
            )
    database.close()


def test_many_processes_create_migrate_and_write_one_file_at_once(home: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(home, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    database = Database.open(home)
    assert database.rows("SELECT seq FROM audit ORDER BY seq") == [(n,) for n in range(1, 101)]
    database.close()


def _die_inside(home: Path) -> None:
    database = Database.open(home)
    with database.transaction() as cursor:
        cursor.execute(AUDIT, (b"committed",))
    with database.transaction() as cursor:
        cursor.execute(AUDIT, (b"never committed",))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_inside_a_transaction_leaves_only_what_it_committed(home: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_inside, args=(home,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    database = Database.open(home)
    assert database.rows("SELECT record FROM audit") == [(b"committed",)]
    with database.transaction() as cursor:  # its lock died with it
        cursor.execute(AUDIT, (b"next",))
    database.close()


def test_a_file_of_a_newer_actum_is_left_alone_and_the_remedy_named(home: Path) -> None:
    Database.open(home).close()
    with sqlite3.connect(home / "actum.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = (home / "actum.db").read_bytes()
    with pytest.raises(Refused, match=r"newer Actum.*schema 999.*Upgrade Actum") as refusal:
        Database.open(home)
    assert refusal.value.code == "HOME_NEWER"
    assert (home / "actum.db").read_bytes() == before


def test_a_step_that_fails_leaves_the_version_before_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*MIGRATIONS, ("CREATE TABLE extra (a);\nCREATE TABLE extra (a);\n",))
    monkeypatch.setattr("actum.store.database.MIGRATIONS", broken)
    with pytest.raises(EvidenceUnavailable):
        Database.open(home)
    monkeypatch.undo()
    database = Database.open(home)
    assert database.row("PRAGMA user_version") == (len(MIGRATIONS),)
    assert database.rows("SELECT name FROM sqlite_master WHERE name = 'extra'") == []
    database.close()


def test_a_file_that_is_no_database_is_named_with_what_to_do(home: Path) -> None:
    home.mkdir()
    (home / "actum.db").write_bytes(b"this is not a database, " * 100)
    with pytest.raises(EvidenceUnavailable, match=r"actum\.db is damaged.*restore a backup"):
        Database.open(home)


def test_a_damaged_page_is_found_when_it_is_read(home: Path) -> None:
    database = Database.open(home)
    with database.transaction() as cursor:
        cursor.executemany(AUDIT, [(os.urandom(3000),) for _ in range(50)])
    database.close()
    content = bytearray((home / "actum.db").read_bytes())
    content[-4096 * 20 :] = b"\xff" * 4096 * 20  # records, not the schema at the beginning
    (home / "actum.db").write_bytes(content)
    database = Database.open(home)
    with pytest.raises(EvidenceUnavailable, match="damaged"):
        database.rows("SELECT * FROM audit")
    database.close()


def test_a_store_that_cannot_be_written_says_so(home: Path) -> None:
    database = Database.open(home)
    database._connection.execute("PRAGMA query_only = ON")  # root ignores file modes
    refused = pytest.raises(EvidenceUnavailable, match=r"cannot be written.*mounted read-only")
    with refused, database.transaction() as cursor:
        cursor.execute(AUDIT, (b"one",))
    database.close()


def test_a_missing_home_is_not_made_when_it_must_exist(home: Path) -> None:
    with pytest.raises(EvidenceUnavailable, match="cannot be written"):
        Database.open(home, create=False)
    assert not home.exists()


def test_a_home_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EvidenceUnavailable, match="Give the user"):
        Database.open(tmp_path / "file" / ".actum")


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / ".actum"
    home.mkdir()
    (home / "actum.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(EvidenceUnavailable):
        Database.open(home)
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_full_disk_undoes_the_transaction_and_is_named(home: Path) -> None:
    database = Database.open(home)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = pytest.raises(EvidenceUnavailable, match=r"cannot take more.*Free space")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with refused, database.transaction() as cursor:
            cursor.execute(AUDIT, (b"x" * (4 << 20),))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _count(database) == 0
    with database.transaction() as cursor:
        cursor.execute(AUDIT, (b"small",))
    assert _count(database) == 1
    database.close()


def test_a_lock_that_is_never_released_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actum.store.database.BUSY_TIMEOUT_S", 0.05)
    first, second = Database.open(home), Database.open(home)
    refused = pytest.raises(EvidenceUnavailable, match=r"held by another process.*Try again")
    with first.transaction(), refused, second.transaction():
        pass
    first.close()
    second.close()


def test_a_fork_closes_what_another_thread_holds_without_waiting_for_it(home: Path) -> None:
    database = Database.open(home)
    inside, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with database.transaction() as cursor:
            cursor.execute(AUDIT, (b"{}",))
            inside.set()
            forked.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # or it would wait for ever, and not only until this kills it
        database.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    forked.set()
    holder.join()
    assert status == 0
    assert _count(database) == 1
    database.close()
