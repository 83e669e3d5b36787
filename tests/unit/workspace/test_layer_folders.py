"""Layers that are made before there is a request, and removed after its answer."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum.workspace.layer_folders import LayerFolders
from actum.workspace.retention import recover
from actum.workspace.transaction import Transaction
from hostile.jail import until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "transactions").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def folders(home: Path) -> Iterator[LayerFolders]:
    made = LayerFolders(home, ahead=True)
    yield made
    made.close()


def ready(home: Path) -> list[Path]:
    return sorted((home / "transactions").glob("ready-*"))


def made_ahead(home: Path, folders: LayerFolders) -> Path:
    # Its name exists before its layers do, and only then it can be taken.
    until(lambda: folders._waiting[1], "a folder made ahead")
    (made,) = ready(home)
    return made


def begun(home: Path, folders: LayerFolders, number: int) -> Transaction:
    base = home.parent / "base"
    base.mkdir(exist_ok=True)
    base.chmod(0o750)
    return Transaction.begin(home, f"e-{number}", [str(base)], folders=folders)


def test_a_transaction_takes_what_was_made_ahead_and_leaves_the_next(
    home: Path, folders: LayerFolders
) -> None:
    begun(home, folders, 1).discard()
    made = made_ahead(home, folders)
    inode = made.stat().st_ino
    transaction = begun(home, folders, 2)
    assert transaction.folder.stat().st_ino == inode
    (layer,) = transaction.layers
    found = os.stat(f"{layer.folder}/upper")
    assert stat.S_IMODE(found.st_mode) == 0o750
    (Path(layer.folder) / "upper" / "made").write_text("by the tool")
    assert transaction.commit(lambda _changes: ())[1] == "committed"
    assert (home.parent / "base" / "made").read_text() == "by the tool"
    until(lambda: ready(home), "the next one")
    assert ready(home) != [made]


def test_layers_that_hold_nothing_are_removed_soon(home: Path, folders: LayerFolders) -> None:
    transaction = begun(home, folders, 1)
    assert transaction.commit(lambda _changes: ())[1] == "unchanged"
    until(lambda: not transaction.folder.exists(), "the removal")


def test_recovery_leaves_them_to_a_process_that_lives(home: Path, folders: LayerFolders) -> None:
    begun(home, folders, 1).discard()
    made = made_ahead(home, folders)
    recover(home)
    assert made.exists()
    owner = (made / "owner").read_text().split(" ")
    (made / "owner").write_text(" ".join([*owner[:3], "1"]))
    recover(home)
    assert not made.exists()
    transaction = begun(home, folders, 2)  # the folder it was to take is gone
    assert Path(transaction.layers[0].folder, "upper").is_dir()
    transaction.discard()


def test_a_closed_one_leaves_nothing(home: Path) -> None:
    folders = LayerFolders(home, ahead=True)
    kept = [begun(home, folders, number) for number in range(12)]
    for transaction in kept:
        transaction.commit(lambda _changes: ())
    folders.close()
    assert set(os.listdir(home / "transactions")) <= {"lock"}
    assert "actum-layers" not in {thread.name for thread in threading.enumerate()}


def test_a_fork_takes_none_of_its_parent(home: Path, folders: LayerFolders) -> None:
    begun(home, folders, 1).discard()
    made_ahead(home, folders)
    child = os.fork()
    if child == 0:
        os._exit(0 if folders.take(1) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folders.take(1) is not None
