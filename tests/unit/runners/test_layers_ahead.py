"""Layers that are made before there is a transaction which they belong to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from actum import removal
from actum.runners.layers import LayersAhead
from actum.workspace.retention import recover
from actum.workspace.transaction import Transaction


@pytest.fixture
def begun(tmp_path: Path) -> Transaction:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two").chmod(0o750)
    return Transaction.begin(home, "e-1", [str(tmp_path / "one"), str(tmp_path / "two")])


def layers_of(begun: Transaction) -> dict[str, str]:
    return {layer.grant: layer.folder for layer in begun.layers}


def test_they_become_those_of_the_request(begun: Transaction) -> None:
    layers = layers_of(begun)
    ahead = LayersAhead.beside(layers)
    assert ahead.folder.parent == begun.folder.parent
    assert ahead.serves(layers)
    held = {grant: os.stat(f"{room}/upper").st_ino for grant, room in ahead.folders.items()}
    ahead.move_to(layers)
    for grant, room in layers.items():
        found = os.stat(f"{room}/upper")
        assert found.st_ino == held[grant]
        assert stat.S_IMODE(found.st_mode) == stat.S_IMODE(os.stat(grant).st_mode)
        assert sorted(os.listdir(room)) == [removal.MARKER, "lower", "upper", "work"]
        (Path(room) / "upper" / "made").write_text("x")
    ahead.discard()
    assert not ahead.folder.exists()
    assert begun.commit(lambda _changes: ())[1] == "committed"
    assert all(os.listdir(grant) == ["made"] for grant in layers)


def test_they_serve_no_request_that_they_differ_from(begun: Transaction) -> None:
    layers = layers_of(begun)
    one, two = layers
    ahead = LayersAhead.beside(layers)
    assert not ahead.serves({one: layers[one]})
    upper = Path(ahead.folders[one]) / "upper"
    (upper / "written").write_text("x")
    assert not ahead.serves(layers)
    (upper / "written").unlink()
    assert ahead.serves(layers)
    os.chmod(f"{ahead.folders[two]}/upper", 0o755)
    assert not ahead.serves(layers)


def test_two_are_never_the_same(begun: Transaction) -> None:
    layers = layers_of(begun)
    assert LayersAhead.beside(layers).folder != LayersAhead.beside(layers).folder


def test_recovery_leaves_them_to_a_process_that_lives_and_removes_those_of_a_dead_one(
    begun: Transaction,
) -> None:
    home, ahead = begun.folder.parent.parent, LayersAhead.beside(layers_of(begun))
    recover(home)
    assert ahead.folder.exists()
    owner = (ahead.folder / "owner").read_text().split(" ")
    (ahead.folder / "owner").write_text(" ".join([*owner[:3], "1"]))
    recover(home)
    assert not ahead.folder.exists()


def test_a_folder_that_is_gone_leaves_nothing_half_made(begun: Transaction) -> None:
    layers = layers_of(begun)
    before = sorted(os.listdir(begun.folder.parent))
    os.rmdir([*layers][1])
    with pytest.raises(FileNotFoundError):
        LayersAhead.beside(layers)
    assert sorted(os.listdir(begun.folder.parent)) == before
