"""Failures of the disk and of SQLite are named with what to do about them."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from actum.doors.known_failures import explained


@pytest.mark.parametrize(
    ("number", "text", "remedy"),
    [
        (errno.ENOSPC, "no room left", "Free space"),
        (errno.EDQUOT, "quota", "Free space"),
        (errno.EROFS, "read-only", "Mount"),
        (errno.EIO, "disk reported an error", "kernel log"),
        (errno.EMFILE, "too many open files", "ulimit -n"),
        (errno.EACCES, "No permission", "owner"),
    ],
)
def test_of_the_system(number: int, text: str, remedy: str) -> None:
    found = explained(OSError(number, "words", "/some/file"))
    assert found is not None
    assert text in found.message
    assert "/some/file" in found.message
    assert remedy in found.remedy
    without = explained(OSError(number, "words"))
    assert without is not None
    assert without.message.endswith(".")


def _full(path: Path) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE t (a)")
    database.execute("PRAGMA max_page_count = 2")
    database.execute("INSERT INTO t VALUES (zeroblob(100000))")


def _read_only(path: Path) -> None:
    sqlite3.connect(path).execute("CREATE TABLE t (a)")
    sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True).execute("CREATE TABLE u (a)")


def _locked(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    sqlite3.connect(path, timeout=0).execute("CREATE TABLE t (a)")


def _missing(path: Path) -> None:
    sqlite3.connect(path / "no" / "where").execute("CREATE TABLE t (a)")


@pytest.mark.parametrize(
    ("fail", "text", "remedy"),
    [
        (_full, "no room left", "Free space"),
        (_read_only, "read-only", "Mount"),
        (_locked, "Another process", "try again"),
        (_missing, "cannot be opened", "owner"),
    ],
)
def test_of_sqlite(fail: object, text: str, remedy: str, tmp_path: Path) -> None:
    assert callable(fail)
    with pytest.raises(sqlite3.OperationalError) as caught:
        fail(tmp_path / "db")
    found = explained(caught.value)
    assert found is not None
    assert text in found.message
    assert remedy in found.remedy
    assert found.code == "FAULT"


def test_others_stay_unexplained() -> None:
    for error in (ValueError("x"), OSError(errno.ENOTDIR, "x"), sqlite3.OperationalError("x")):
        assert explained(error) is None
