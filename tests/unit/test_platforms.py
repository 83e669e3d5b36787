"""On another platform: one sentence, from the command and from the library, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: What Python has there: no `fcntl`, `pwd` and the like on Windows, another name of the platform.
_ELSEWHERE = """
import os, sys
sys.platform = {platform!r}
for name in {absent!r}:
    sys.modules[name] = None
    for attribute in ("eventfd", "memfd_create", "uname", "geteuid"):
        if hasattr(os, attribute):
            delattr(os, attribute)
"""
_WINDOWS = ("fcntl", "pwd", "grp", "resource", "termios", "pty")


def elsewhere(program: str, platform: str) -> subprocess.CompletedProcess[str]:
    absent = _WINDOWS if platform == "win32" else ()
    return subprocess.run(
        [sys.executable, "-c", _ELSEWHERE.format(platform=platform, absent=absent) + program],
        text=True,
        capture_output=True,
        check=False,
    )


def command(*words: str) -> str:
    return f"from actum.doors.cli.main import main; main({list(words)!r})"


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
@pytest.mark.parametrize("words", [("exec", "shell"), ("doctor",), ("--help",)], ids=" ".join)
def test_a_command_says_where_actum_runs(platform: str, name: str, words: tuple[str, ...]) -> None:
    answer = elsewhere(command(*words), platform)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith("Actum runs on Linux on x86-64")
    assert f"this is {name}." in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_with_json_it_is_one_document(platform: str) -> None:
    answer = elsewhere(command("exec", "--json", "shell"), platform)
    error = json.loads(answer.stdout)["error"]
    assert (answer.returncode, error["code"]) == (3, "PLATFORM_UNSUPPORTED")


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_the_library_can_be_imported_and_its_names_say_it(platform: str, name: str) -> None:
    program = (
        "import actum\n"
        "print(actum.__version__)\n"
        "try:\n    from actum import Runtime\nexcept ImportError as error:\n    print(error)\n"
    )
    answer = elsewhere(program, platform)
    assert answer.returncode == 0, answer.stderr
    version, sentence = answer.stdout.splitlines()
    assert version[0].isdigit()
    assert sentence.startswith("Actum runs on Linux") and name in sentence


def test_here_it_says_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from actum import Runtime; print(Runtime.__name__)"],
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Runtime\n")
