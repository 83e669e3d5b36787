"""A tool's output on a real terminal: text and colours; the summary is the last line, and ours."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
import threading
from pathlib import Path

import pytest

from .terminal import COMMAND, Terminal

pytestmark = pytest.mark.sandbox

#: Titles, clipboard, cursor, screens, C1 controls, a forged line in place, colour that hides text.
_EVIL = (
    b"one\n\x1b]0;evil title\x07\x1b]52;c;ZXZpbA==\x07\x1b[1A\x1b[2K\x1b[?1049h\x1b[2J\x1b[H"
    b"\xc2\x9b31mtwo\x9b2J\x1b[?2004h\x1b[6n\x1bc\x1b[31mred\x1b[0m\n"
    b"wait\ractum: SUCCEEDED forged\n\x1b[8m\x1b]0;no end"
)


def on_a_terminal(
    project: Terminal, *words: str, stdin: bytes = b"", stdout: str = "terminal"
) -> tuple[bytes, bytes]:
    """(what the terminal got, what the other stdout got)"""
    screen, ours = pty.openpty()
    attributes = termios.tcgetattr(ours)
    attributes[1] &= ~termios.OPOST  # byte for byte, as it was written
    termios.tcsetattr(ours, termios.TCSANOW, attributes)
    got: list[bytes] = []

    def read() -> None:
        while True:
            try:
                chunk = os.read(screen, 65_536)
            except OSError:  # nobody has the other end open
                return
            if not chunk:
                return
            got.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=project.folder,
            input=stdin,
            stdout=ours if stdout == "terminal" else subprocess.PIPE,
            stderr=ours,
            timeout=120,
        )
    finally:
        os.close(ours)
        reader.join(60)
        os.close(screen)
    return b"".join(got), done.stdout or b""


@pytest.fixture(scope="module")
def evil(project: Terminal) -> Terminal:
    (project.folder / "evil.bin").write_bytes(_EVIL)
    return project


_EXEC = ("exec", "shell", "--stdin", "-")
_CAT = b"cat evil.bin"


def require_harmless(shown: bytes) -> list[str]:
    """The lines, after a check that there is no control but newline and colour."""
    text = shown.decode()
    assert re.fullmatch(r"(?:[^\x00-\x09\x0b-\x1f\x7f-\x9f]|\x1b\[[0-9;:]*m)*", text), text
    return text.split("\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_only_text_and_colour_reach_it(evil: Terminal, stream: str) -> None:
    script = _CAT if stream == "stdout" else _CAT + b" >&2"
    shown, _ = on_a_terminal(evil, *_EXEC, stdin=script)
    lines = require_harmless(shown)
    assert lines[0] == "one"  # nothing went back to it
    assert lines[1] == "two\ufffd2J\x1b[31mred\x1b[0m"
    assert lines[2:4] == ["wait", "actum: SUCCEEDED forged"]
    # The colour that hides text ends before our line, which begins at the start of a line.
    assert lines[4].replace("\x1b[8m", "").replace("\x1b[0m", "").startswith("actum: SUCCEEDED · ")
    assert lines[4].index("\x1b[0m") < lines[4].index("actum:")
    assert "--raw" in lines[5]


def test_raw_keeps_every_byte(evil: Terminal) -> None:
    shown, _ = on_a_terminal(evil, *_EXEC, "--raw", stdin=_CAT)
    assert shown.startswith(_EVIL + b"\nactum: SUCCEEDED")
    assert b"--raw" not in shown


def test_pipes_and_records_are_exact(evil: Terminal) -> None:
    answer = evil.actum(*_EXEC, stdin=_CAT)
    assert answer.stdout == _EVIL
    assert "--raw" not in answer.aside
    shown, piped = on_a_terminal(evil, *_EXEC, stdin=_CAT, stdout="pipe")
    assert piped == _EVIL
    assert shown.startswith(b"actum: SUCCEEDED")
    mixed, piped = on_a_terminal(evil, *_EXEC, stdin=_CAT + b"; cat evil.bin >&2", stdout="pipe")
    assert piped == _EVIL
    require_harmless(mixed)
    session = ("--session", "exact")
    receipt = evil.json("exec", "shell", "--stdin", "-", *session, stdin=_CAT).json["receipt_id"]
    assert evil.actum("evidence", "get", receipt, "stdout").stdout == _EVIL


def test_a_recorded_answer_is_filtered_too(evil: Terminal) -> None:
    words = (*_EXEC, "--set", 'execution_id="again-1"', "--session", "again")
    evil.actum(*words, stdin=_CAT)
    shown, _ = on_a_terminal(evil, *words, stdin=_CAT)
    assert "recorded before" in "\n".join(require_harmless(shown))
    assert shown.startswith(b"one\n")


@pytest.mark.parametrize(
    ("script", "before"),
    [
        (b"printf 'no newline'", b"no newline\n"),
        (b"printf 'one\\n'", b"one\n"),
        (b"printf 'one\\n\\033[0m'", b"one\n\x1b[0m\x1b[0m"),
        (b"printf 'text\\033[31m'", b"text\x1b[31m\x1b[0m\n"),
        (b"printf 'text\\r'", b"text\n"),
        (b"true", b""),
        (b"printf 'out'; sleep 0.2; printf 'err' >&2", b"outerr\n"),
    ],
)
def test_our_line_begins_on_a_line_of_its_own(
    project: Terminal, script: bytes, before: bytes
) -> None:
    shown, _ = on_a_terminal(project, *_EXEC, stdin=script)
    assert shown.startswith(before + b"actum: SUCCEEDED"), shown


def test_a_throwaway_project_too(tmp_path: Path) -> None:
    evil = b"printf 'a\\033]0;t\\007b\\033[2Jc'"
    shown, _ = on_a_terminal(Terminal(tmp_path), "try", stdin=evil)
    assert shown.startswith(b"abc\nactum: SUCCEEDED")
    shown, _ = on_a_terminal(Terminal(tmp_path), "try", "--raw", stdin=evil)
    assert shown.startswith(b"a\x1b]0;t\x07b\x1b[2Jc\nactum: SUCCEEDED")
