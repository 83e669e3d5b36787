"""A transaction over a folder that is gone: refused before the tool, a named fault after it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from actum.errors import Fault, Refused
from actum.workspace.transaction import Transaction


@pytest.mark.parametrize("instead", ["nothing", "file"])
def test_a_folder_that_is_gone_has_changed(tmp_path: Path, instead: str) -> None:
    base = tmp_path / "base"
    base.mkdir()
    if instead == "file":
        (base / "below").touch()
    with pytest.raises(Refused) as caught:
        Transaction.begin(tmp_path, "e-1", [str(base), str(base / "below" / "gone")])
    assert caught.value.code == "PATH_CHANGED"
    assert os.listdir(tmp_path) == ["base"]


def test_a_folder_that_is_there_gets_its_layers(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    begun = Transaction.begin(tmp_path, "e-1", [str(base)])
    assert [layer.grant for layer in begun.layers] == [str(base)]
    begun.discard()


def test_a_folder_that_is_gone_after_the_tool_is_a_fault_that_names_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    begun = Transaction.begin(tmp_path, "e-1", [str(base)])
    (layer,) = begun.layers
    (Path(layer.folder) / "upper" / "made").write_text("by the tool")
    base.rename(tmp_path / "moved")
    with pytest.raises(Fault, match=f"{base} was moved or removed"):
        begun.look()
    assert (Path(layer.folder) / "upper" / "made").read_text() == "by the tool"
    (tmp_path / "moved").rename(base)
    assert [each.grant for each, _ in begun.look().layers] == [str(base)]


def test_a_change_after_the_wait_has_a_time_after_the_start(tmp_path: Path) -> None:
    """The files were written before, and some were never looked at: the kernel treats them
    differently."""
    base = tmp_path / "base"
    base.mkdir()
    files = [base / str(number) for number in range(100)]
    for number, file in enumerate(files):
        file.write_text("before")
        if number % 2:
            file.stat()
    layers = Transaction.begin(tmp_path, "e-1", [str(base)]).layers
    for file in files:
        started = Transaction(tmp_path / "transactions/e-1", layers, time.time_ns(), beside=True)
        started.wait()
        descriptor = os.open(file, os.O_WRONLY)  # `open` would look at it
        os.write(descriptor, b"after")
        os.close(descriptor)
        (Path(layers[0].folder) / "upper" / file.name).write_text("by the tool")
        assert str(file) in started.look().overtaken


def test_a_change_before_the_start_is_no_conflict(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for number in range(100):
        (base / "file").write_text("before")
        begun = Transaction.begin(tmp_path, f"e-{number}", [str(base)])
        begun.wait()
        (layer,) = begun.layers
        (Path(layer.folder) / "upper" / "file").write_text("by the tool")
        assert begun.look().overtaken == (), number
        begun.discard()
