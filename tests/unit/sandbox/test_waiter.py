"""The program that a tool's process is until it may start: the shipped one, and its source."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_PROJECT = Path(__file__).parents[3]
_FOLDER = _PROJECT / "src/actum/sandbox"
_SHIPPED = "waiter-x86_64"
_GO = 100


@pytest.fixture(params=["shipped", "built"])
def waiter(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    program = tmp_path / "waiter"
    if request.param == "shipped":
        shutil.copy(_FOLDER / _SHIPPED, program)
        program.chmod(0o755)
        return program
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    flags = next(
        line.split("=", 1)[1].split()
        for line in (_PROJECT / "Makefile").read_text().splitlines()
        if line.startswith("WAITER_FLAGS")
    )
    subprocess.run(["gcc", *flags, "-o", program, _FOLDER / "waiter.c"], check=True)
    return program


def _ends(
    program: Path, words: list[str], said: bytes, environment: dict[str, str]
) -> tuple[int, bytes]:
    """(exit code, output) of what becomes of it when it is told this."""
    go, start = os.pipe()
    out, output = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, go, _GO),
        (os.POSIX_SPAWN_DUP2, output, 1),
        *((os.POSIX_SPAWN_CLOSE, each) for each in (go, start, out, output)),
    ]
    pid = os.posix_spawn(program, ["waiter", *words], environment, file_actions=actions)
    os.close(go)
    os.close(output)
    os.write(start, said)
    os.close(start)
    _pid, status = os.waitpid(pid, 0)
    with os.fdopen(out, "rb") as reading:
        return os.waitstatus_to_exitcode(status), reading.read()


def test_it_becomes_the_program_with_its_words_and_environment_alone(waiter: Path) -> None:
    words = ["/bin/sh", "a name", "-c", 'echo "$0" "$@" "$A"', "first", "second word"]
    environment = {"A": "b c", "PATH": "/usr/bin:/bin"}
    code, output = _ends(waiter, words, b"G", environment)
    assert (code, output) == (0, b"first second word b c\n")
    code, output = _ends(waiter, ["/usr/bin/env", "env"], b"G", environment)
    assert sorted(output.splitlines()) == [b"A=b c", b"PATH=/usr/bin:/bin"]


def test_the_program_does_not_hear_the_way_to_it(waiter: Path) -> None:
    listing = ["-c", "ls /proc/self/fd"]
    environment = {"PATH": "/usr/bin:/bin"}
    _code, without = _ends(Path("/bin/sh"), listing, b"G", environment)
    assert str(_GO).encode() in without.split()
    code, output = _ends(waiter, ["/bin/sh", "sh", *listing], b"G", environment)
    assert code == 0 and b"0" in output.split()
    assert str(_GO).encode() not in output.split()


def test_whoever_hangs_up_without_a_word_wanted_nothing(waiter: Path) -> None:
    assert _ends(waiter, ["/bin/echo", "echo", "started"], b"", {}) == (0, b"")
    assert _ends(waiter, ["/bin/echo", "echo", "started"], b"G", {}) == (0, b"started\n")


def test_what_cannot_be_executed_is_told_as_a_shell_would(waiter: Path, tmp_path: Path) -> None:
    assert _ends(waiter, [str(tmp_path / "absent"), "x"], b"G", {})[0] == 127
    assert _ends(waiter, [str(tmp_path), "x"], b"G", {})[0] == 126
