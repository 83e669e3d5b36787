"""What is kept of transactions that are over is bounded; what waits for a person stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actum import removal
from actum.sandbox.identity import TOOL_ID
from actum.workspace.kept_changes import decide, undo
from actum.workspace.retention import Keep, recover
from actum.workspace.transaction import Transaction
from actum.workspace.transaction_record import Kept

MUCH = Keep(count=1_000, size_bytes=1 << 30)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "base").mkdir()
    return tmp_path / "home"


def _change(home: Path, number: int, text: str, *, hold: bool = False) -> None:
    """As a tool leaves it: a new content of one file, in the upper layer."""
    base = home.parent / "base"
    begun = Transaction.begin(home, f"e{number}-1", [str(base)])
    begun.wait()
    (Path(begun.layers[0].folder) / "upper" / f"file-{number}").write_text(text)
    begun.commit(lambda changes: ("file",) if hold else ())
    # The order is the order of the records; their times may be the same to the tick.
    os.utime(home / "transactions" / f"e{number}-1" / "record.json", ns=(number, number))


def _names(home: Path) -> list[str]:
    return [kept.execution_id for kept in Kept.all(home)]


def test_the_newest_are_kept(home: Path) -> None:
    for number in range(1, 6):
        _change(home, number, "x")
    recover(home, MUCH)
    assert _names(home) == ["e1", "e2", "e3", "e4", "e5"]
    recover(home, Keep(count=2, size_bytes=1 << 30))
    assert _names(home) == ["e4", "e5"]
    assert sorted(os.listdir(home / "transactions")) == ["e4-1", "e5-1", "lock"]
    assert len(list((home.parent / "base").iterdir())) == 5


def test_of_large_contents_fewer_are_kept(home: Path) -> None:
    for number in range(1, 4):
        _change(home, number, "x" * 1_000)  # its copy, for the diff, is what is kept
    recover(home, Keep(count=100, size_bytes=2_000))
    assert _names(home) == ["e2", "e3"]
    recover(home, Keep(count=100, size_bytes=1_999))
    assert _names(home) == ["e3"]


def test_what_was_replaced_counts(home: Path) -> None:
    (home.parent / "base" / "file-1").write_text("y" * 5_000)
    _change(home, 1, "small")
    recover(home, Keep(count=100, size_bytes=5_005))
    assert _names(home) == ["e1"]
    recover(home, Keep(count=100, size_bytes=5_004))
    assert _names(home) == []


def test_what_waits_is_never_removed(home: Path) -> None:
    _change(home, 1, "x", hold=True)
    _change(home, 2, "x")
    recover(home, Keep(count=0, size_bytes=0))
    assert [(kept.execution_id, kept.state) for kept in Kept.all(home)] == [("e1", "held")]
    kept = Kept.find(home, "e1-1")
    assert kept is not None
    assert decide(kept, commit_it=True) == "committed"
    assert (home.parent / "base" / "file-1").read_text() == "x"


def test_what_was_undone_is_over_too(home: Path) -> None:
    _change(home, 1, "x")
    kept = Kept.find(home, "e1-1")
    assert kept is not None
    undo(kept)
    assert not (home.parent / "base" / "file-1").exists()
    recover(home, Keep(count=0, size_bytes=0))
    assert os.listdir(home / "transactions") == ["lock"]


def test_a_stage_that_fails_leaves_no_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = home.parent / "base"
    begun = Transaction.begin(home, "e1-1", [str(base)])
    (Path(begun.layers[0].folder) / "upper" / "file").write_text("x")

    def full(*_words: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        begun.commit(lambda _changes: ())
    monkeypatch.undo()
    begun.abandon()
    assert os.listdir(home / "transactions") == ["lock"]
    assert os.listdir(base) == []


def test_one_that_begins_is_not_taken_for_one_that_was_left(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may open the project at any moment."""
    make = removal.make

    def made_and_looked_at(folder: Path) -> None:
        make(folder)
        recover(home, MUCH)

    monkeypatch.setattr(removal, "make", made_and_looked_at)
    begun = Transaction.begin(home, "e1-1", [str(home.parent / "base")])
    assert sorted(os.listdir(home / "transactions")) == ["e1-1", "lock"]
    begun.discard()


@pytest.mark.parametrize("marked", [True, False])
def test_what_a_killed_process_has_only_begun_is_removed(home: Path, marked: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from actum.evidence.owner import *; print(current_owner())"],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = home / "transactions" / f"begun {done.stdout.strip()} e1-1"
    folder.parent.mkdir()
    folder.mkdir()
    if marked:
        removal.mark(folder)
    recover(home, MUCH)
    assert os.listdir(home / "transactions") == ["lock"]


def test_names_of_one_file_have_one_owner_and_stay_one_file(home: Path) -> None:
    base = home.parent / "base"
    begun = Transaction.begin(home, "e1-1", [str(base)])
    above = Path(begun.layers[0].folder) / "upper"
    (above / "one").write_text("x")
    if os.geteuid() == 0:
        os.chown(above / "one", TOOL_ID, TOOL_ID)  # as a tool leaves it
    os.link(above / "one", above / "two")
    assert begun.commit(lambda _changes: ())[1] == "committed"
    one, two = (base / "one").stat(), (base / "two").stat()
    assert (one.st_ino, one.st_nlink) == (two.st_ino, 2)
    assert (one.st_uid, one.st_gid) == (os.geteuid(), os.getegid())
