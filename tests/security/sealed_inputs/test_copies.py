"""Copying an input: what is refused, how much is copied, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.limits import INPUT_FILES_BYTES
from actum.errors import Refused
from actum.workspace import sealed
from actum.workspace.sealed import SealedInputs
from hostile.jail import until
from hostile.sealed_project import Sealed


@pytest.fixture
def inputs(tmp_path: Path) -> SealedInputs:
    (tmp_path / "home").mkdir(mode=0o700)
    return SealedInputs(str(tmp_path / "home"))


def test_a_file_is_read_once_for_one_execution(inputs: SealedInputs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("first")
    (one,) = inputs.seal([str(file), str(file)])
    file.write_text("second")
    assert inputs.seal([str(file)]) == (one,)
    assert Path(one.copy).read_text() == "first"
    inputs.close()
    assert os.listdir(tmp_path / "home" / "inputs") == []
    (again,) = inputs.seal([str(file)])
    assert Path(again.copy).read_text() == "second"


KINDS = ["link", "link on the way", "pipe", "device", "folder", "nothing"]


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_regular_file_at_its_own_path_is_copied(
    inputs: SealedInputs, tmp_path: Path, kind: str
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "file").write_text("x")
    path = tmp_path / "input"
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("only root can make a device")
    make = {
        "link": lambda: path.symlink_to(real / "file"),
        "link on the way": lambda: path.symlink_to(real),
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: os.mknod(path, 0o020600, os.makedev(1, 5)),
        "folder": path.mkdir,
        "nothing": lambda: None,
    }
    make[kind]()
    wanted = path / "file" if kind == "link on the way" else path
    with pytest.raises(Refused) as refused:
        inputs.seal([str(wanted)])
    assert refused.value.code == "PATH_CHANGED"
    # The control: the same file at its own path.
    (copied,) = inputs.seal([str(real / "file")])
    assert Path(copied.copy).read_text() == "x"


def test_a_file_that_grows_for_ever_is_refused_at_the_limit(
    inputs: SealedInputs, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    grows = (
        "import sys\nwith open(sys.argv[1], 'ab', 0) as file:\n"
        " while True: file.write(bytes(1 << 20))"
    )
    os.truncate(file, INPUT_FILES_BYTES - 10)
    writer = subprocess.Popen([sys.executable, "-c", grows, str(file)])
    try:
        until(lambda: file.stat().st_size > INPUT_FILES_BYTES, "growth")
        with pytest.raises(Refused) as refused:
            inputs.seal([str(file)])
    finally:
        writer.kill()
        writer.wait()
    assert refused.value.code == "IV_05"
    # What was refused takes nothing from the next one.
    os.truncate(file, INPUT_FILES_BYTES)
    (copied,) = inputs.seal([str(file)])
    assert Path(copied.copy).stat().st_size == INPUT_FILES_BYTES


def test_the_limit_is_for_all_files_together(inputs: SealedInputs, tmp_path: Path) -> None:
    half = INPUT_FILES_BYTES // 2
    paths = []
    for name, size in (("a", half), ("b", half), ("c", 1)):
        (tmp_path / name).write_bytes(bytes(size))
        paths.append(str(tmp_path / name))
    assert len(inputs.seal(paths[:2])) == 2
    with pytest.raises(Refused) as refused:
        inputs.seal(paths)
    assert refused.value.code == "IV_05"


def test_fifty_mebibytes_are_refused_before_anything_is_copied(direct: Sealed) -> None:
    file = direct.work / "large"
    os.truncate(os.open(file, os.O_CREAT | os.O_WRONLY), 50 << 20)
    result = direct.with_input("wc -c < large", file)
    assert result.reason_codes == ("IV_05",)
    assert not (direct.root / ".actum" / "inputs").exists()


@pytest.mark.sandbox
def test_as_much_as_is_accepted_is_read(any_mode: Sealed) -> None:
    file = any_mode.work / "large"
    file.write_bytes(os.urandom(1 << 20) * 10)
    said = any_mode.said(any_mode.with_input("sha256sum < large; wc -c < large", file))
    expected = any_mode.outside("sha256sum < large; wc -c < large")
    assert said == expected
    assert any_mode.copies() == []


def test_a_disk_that_is_full_refuses(inputs: SealedInputs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    (tmp_path / "home" / "inputs").write_text("in the way")
    with pytest.raises(Refused) as refused:
        inputs.seal([str(file)])
    assert refused.value.code == "INPUT_NOT_SEALED"
    assert str(file) in str(refused.value)


def test_a_check_leaves_no_copy(direct: Sealed) -> None:
    file = direct.work / "input"
    file.write_text("x")
    assert direct.runtime.check(direct.asked("cat input", file)).violations == ()
    assert direct.copies() == []


_KILLED = """
import os, signal, sys
from actum.workspace.sealed import SealedInputs
inputs = SealedInputs(sys.argv[1])
inputs.seal([sys.argv[2]])
print("sealed", flush=True)
signal.pause()
"""


def test_copies_of_a_killed_process_go_with_the_next_sweep(direct: Sealed) -> None:
    file = direct.work / "input"
    file.write_text("x")
    home = direct.root / ".actum"
    words = [sys.executable, "-c", _KILLED, str(home), str(file)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"sealed\n"
    sealed.recover(home)
    assert len(os.listdir(home / "inputs")) == 1  # it lives: the copies are its own
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(os.listdir(home / "inputs")) == 1
    direct.close()
    with Runtime.open(direct.root):
        assert os.listdir(home / "inputs") == []


@pytest.mark.sandbox
def test_a_cancelled_and_a_failing_execution_leave_no_copy(any_mode: Sealed) -> None:
    file = any_mode.work / "input"
    file.write_text("x")
    for script, more in (("exit 3", {}), ("sleep 60", {"timeout": "1s"}), ("kill -9 $$", {})):
        assert not any_mode.with_input(script, file, **more).ok
        left = [path for path in any_mode.copies() if path.startswith("inputs")]
        assert left == []


_RUNS = """
import sys
from pathlib import Path
from actum import Runtime
with Runtime.open(sys.argv[1]) as runtime:
    work = Path(sys.argv[2])
    runtime.exec("shell", stdin="echo up; sleep 4200", cwd=work, files=[str(work / "input")],
                 timeout="5m", on_output=lambda *_: print("up", flush=True))
"""


@pytest.mark.sandbox
def test_killed_while_the_tool_runs_nothing_stays(any_mode: Sealed) -> None:
    (any_mode.work / "input").write_text("x")
    any_mode.close()
    words = [sys.executable, "-c", _RUNS, str(any_mode.root), str(any_mode.work)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert any(path.startswith("inputs/") for path in any_mode.copies())
    process.kill()
    process.wait()
    process.stdout.close()
    with Runtime.open(any_mode.root):
        assert any_mode.copies() == []
