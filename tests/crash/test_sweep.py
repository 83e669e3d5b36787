"""What is swept, what is spared, and that several may sweep at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime, removal
from actum.errors import Refused
from actum.evidence.owner import current_owner
from actum.sandbox import sweep
from actum.sandbox.cgroup import fresh_name

from .matrix import make_template

pytestmark = pytest.mark.sandbox

_HANG = """
import os, sys
from actum import Runtime
os.chdir(sys.argv[1])
with Runtime.open(sys.argv[1]) as runtime:
    told = lambda *_: print("up", flush=True)
    runtime.exec("shell", stdin=b"echo said; sleep 60", on_output=told)
"""
_NEXT = """
import os, sys
from actum import Runtime
os.chdir(sys.argv[1])
sys.stdin.readline()
with Runtime.open(sys.argv[1]) as runtime:
    assert runtime.services.executions.open_executions() == ()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_template(tmp_path)
    return tmp_path / "template"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def dead() -> str:
    """The mark of a process that has ended."""
    script = "from actum.sandbox.sweep import marked_name; print(marked_name())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return done.stdout.decode().strip()


def _crash(project: Path) -> None:
    """One execution whose process is killed while its tool runs."""
    process = subprocess.Popen([sys.executable, "-c", _HANG, project], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait()
    process.stdout.close()


def _records(project: Path) -> list[tuple[str, ...]]:
    with Runtime.open(project) as runtime:
        return runtime.database.rows(
            "SELECT e.state, e.outcome, count(*) FROM executions e"
            " JOIN receipts USING (execution_id) GROUP BY e.execution_id"
        )


def test_of_many_that_start_after_one_crash_exactly_one_closes_the_record(project: Path):
    for _ in range(3):
        _crash(project)
    starts = [
        subprocess.Popen([sys.executable, "-c", _NEXT, project], stdin=subprocess.PIPE)
        for _ in range(6)
    ]
    time.sleep(1)  # until all of them stand at the line
    for start in starts:
        assert start.stdin
        start.stdin.close()
    assert [start.wait() for start in starts] == [0] * 6
    assert _records(project) == [("FINAL", "EXCEPTION", 1)] * 3


def test_a_long_running_runtime_cleans_up_after_others(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(project)
    with Runtime.open(project) as runtime:
        _crash(project)
        runtime.exec("shell", stdin=b"true")
        assert len(runtime.services.executions.open_executions()) == 1, "not at every use"
        runtime._swept -= 3_600
        runtime.exec("shell", stdin=b"true")
        assert runtime.services.executions.open_executions() == ()


def test_an_execution_of_a_living_process_is_left_alone(project: Path):
    process = subprocess.Popen([sys.executable, "-c", _HANG, project], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    with Runtime.open(project) as runtime:
        (found,) = runtime.services.executions.open_executions()
        assert found.alive
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_dead_process_loses_its_throwaway_home_and_a_living_one_keeps_it(
    temporary: Path, dead: str
):
    kept = sweep.make_home()
    left = kept.parent / dead
    removal.make(left)
    (left / "deep" / "er").mkdir(parents=True)
    stranger = kept.parent / "something-else"
    stranger.mkdir()
    sweep.sweep_homes()
    assert sorted(kept.parent.iterdir()) == sorted([kept, stranger])
    stranger.rmdir()
    sweep.remove_home(kept)
    assert list(temporary.iterdir()) == []


def test_a_folder_that_only_has_such_a_name_is_left_alone(temporary: Path, dead: str):
    kept = sweep.make_home()
    left = kept.parent / dead
    (left / "work").mkdir(parents=True)
    sweep.sweep_homes()
    assert (left / "work").is_dir()
    sweep.remove_home(kept)


def test_a_home_of_another_boot_is_not_judged(temporary: Path, dead: str):
    folder = temporary / f"actum-{os.geteuid()}"
    elsewhere = folder / ("0" * 8 + dead[8:])
    elsewhere.mkdir(parents=True)
    folder.chmod(0o700)
    sweep.sweep_homes()
    assert elsewhere.exists()


@pytest.mark.parametrize("planted", ["link", "open to others"])
def test_a_planted_folder_for_homes_is_refused_and_never_swept(
    temporary: Path, tmp_path: Path, dead: str, planted: str
):
    folder, target = temporary / f"actum-{os.geteuid()}", tmp_path / "target"
    (target / dead).mkdir(parents=True)
    if planted == "link":
        folder.symlink_to(target)
    else:
        target.rename(folder)
        folder.chmod(0o777)
    with pytest.raises(Refused, match="TMPDIR"):
        sweep.make_home()
    sweep.sweep_homes()
    assert (folder / dead).exists()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.req("000-187")
def test_a_group_left_behind_is_removed_with_whoever_lives_in_it(
    dead: str, sleeper: subprocess.Popen[bytes]
):
    _boot, namespace, pid, start, _ = dead.split("-")
    left = [f"{parent}/{namespace}-{pid}-{start}-1" for parent in sweep._group_parents()]
    ours = [f"{parent}/{fresh_name()}" for parent in sweep._group_parents()]
    for folder in (*left, *ours):
        os.makedirs(folder)
    for folder in left:
        Path(folder, "cgroup.procs").write_text(str(sleeper.pid))
    sweep.sweep_groups()
    assert sleeper.wait() == -signal.SIGKILL
    assert [folder for folder in left if os.path.exists(folder)] == []
    assert [folder for folder in ours if not os.path.exists(folder)] == []
    for folder in ours:
        os.rmdir(folder)


def test_a_mark_names_this_process(dead: str):
    boot, namespace, pid, start = current_owner().split(" ")
    assert sweep.marked_name().startswith(f"{boot[:8]}-{namespace[5:-1]}-{pid}-{start}-")
    assert sweep.marked_name() != sweep.marked_name()


_COMMAND = (sys.executable, "-m", "actum.doors.cli.main")


def _files(home: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(home)): file.read_bytes() for file in home.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize(
    "words", [("verify",), ("verify", "--all"), ("receipts", "list"), ("doctor",)], ids=" ".join
)
def test_commands_that_run_nothing_remove_what_a_killed_process_left(
    project: Path, temporary: Path, dead: str, words: tuple[str, ...]
):
    with Runtime.open(project) as runtime:
        assert runtime.exec("shell", stdin=b"true", cwd=project).ok
    left = sweep.make_home().parent / dead
    removal.make(left)
    _boot, namespace, pid, start, _ = dead.split("-")
    groups = [f"{parent}/{namespace}-{pid}-{start}-1" for parent in sweep._group_parents()]
    for folder in groups:
        os.makedirs(folder)
    done = subprocess.run([*_COMMAND, *words], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not left.exists()
    assert [folder for folder in groups if os.path.exists(folder)] == []


def test_verify_changes_no_record_of_a_killed_process(project: Path):
    """What verify is to judge, it must not change: the next execution closes the record."""
    _crash(project)
    before = _files(project / ".actum")
    done = subprocess.run([*_COMMAND, "verify", "--all"], cwd=project, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _files(project / ".actum") == before
    assert _records(project) == [("FINAL", "EXCEPTION", 1)]
