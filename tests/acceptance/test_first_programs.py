"""What people type first: a program for a shell, Python or Node runs, or the answer says how."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from .conftest import make_project
from .terminal import COMMAND, Answer, Terminal

pytestmark = pytest.mark.sandbox

NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
#: A process on a busy machine; nothing here promises to be fast.
LONG_S = 120


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    made = make_project(tmp_path_factory.mktemp("programs") / "d")
    files = {
        "a.py": "import sys; print('file', *sys.argv[1:])",
        "a.js": "console.log('file', ...process.argv.slice(2))",
        "a.sh": "echo file $1",
        "my script.sh": "echo spaced",
        "empty.py": "",
        "blank.py": " \n\n",
        "one.txt": "1",
    }
    for name, content in files.items():
        (made.folder / name).write_text(content)
    return made


def in_a_shell(project: Terminal, command: str, tmp_path: Path) -> Answer:
    """The command as a person copies it from a message, with `actum` on PATH."""
    actum = tmp_path / "bin" / "actum"
    actum.parent.mkdir(exist_ok=True)
    words = " ".join(f"'{word}'" for word in COMMAND)
    actum.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    actum.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=project.folder,
        env={**os.environ, "PATH": f"{actum.parent}:{os.environ['PATH']}"},
        timeout=LONG_S,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("exec", "shell", "--", "-c", "echo hi | tr h H"), "Hi\n"),
        (("exec", "python", "--", "-c", "print(6 * 7)"), "42\n"),
        pytest.param(("exec", "node", "--", "-e", "console.log(6 * 7)"), "42\n", marks=NODE),
        (("exec", "python", "a.py"), "file\n"),
        (("exec", "python", "a.py", "x", "y z"), "file x y z\n"),
        (("exec", "python", "./a.py", "--", "-x"), "file -x\n"),
        (("exec", "shell", "a.sh", "$(id)"), "file $(id)\n"),
        (("exec", "shell", "my script.sh"), "spaced\n"),
        pytest.param(("exec", "node", "a.js", "x"), "file x\n", marks=NODE),
        (("sh", "echo hi | tr h H"), "Hi\n"),
        (("sh", "echo", "-n", "a  b", "$HOME", "&&", "*"), "a  b $HOME && *"),
        (("sh", "--timeout", "60s", "--", "ls", "-1", "one.txt"), "one.txt\n"),
        (("sh", "--stdin", "a.sh"), "file\n"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_program_in_words_or_in_a_file_runs(
    project: Terminal, words: tuple[str, ...], said: str
) -> None:
    """The harness gives an empty pipe as stdin, as a caller does who has nothing to say."""
    answer = project.actum(*words)
    assert (answer.code, answer.text) == (0, said), answer.aside
    assert "SUCCEEDED" in answer.aside


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("exec", "shell"), "hi\n"),
        (("exec", "shell", "--timeout", "60s"), "hi\n"),
        (("exec", "shell", "-", "x"), "hi x\n"),
        (("exec", "shell", "--stdin", "-", "--", "x"), "hi x\n"),
        (("sh",), "hi\n"),
        (("sh", "-"), "hi\n"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_piped_program_runs(project: Terminal, words: tuple[str, ...], said: str) -> None:
    answer = project.actum(*words, stdin=b"echo hi $1")
    assert (answer.code, answer.text) == (0, said), answer.aside


def test_a_program_from_a_redirected_file_runs(project: Terminal, tmp_path: Path) -> None:
    for command in ("actum exec python < a.py", "actum sh < a.sh", "cat a.py | actum exec python"):
        answer = in_a_shell(project, command, tmp_path)
        assert (answer.code, answer.text.strip()) == (0, "file"), answer.aside


REFUSED = [
    ("exec", "shell", "ls -la"),
    ("exec", "shell", "ls"),
    ("exec", "shell", "ls", "one.txt"),
    ("exec", "shell", "printf '%s' \"it's\" `pwd`"),
    ("exec", "python", "print(6 * 7)"),
    pytest.param(("exec", "node", "console.log(6 * 7)"), marks=NODE),
    ("exec", "shell", "--", "-c", "echo $1 $2", "x", "y z"),
    ("exec", "python", "--", "-c", "import sys; print(sys.argv)", "x", "y z"),
    ("exec", "shell"),
    ("exec", "python"),
    pytest.param(("exec", "node"), marks=NODE),
    ("exec", "shell", "--stdin", "-"),
    ("exec", "shell", "--stdin", "-", "--", "echo", "x"),
    ("exec", "shell", "--", "-c"),
    ("exec", "shell", "--", "-c", " "),
    ("exec", "python", "--", "-m", "this"),
    ("sh",),
    ("sh", ""),
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_another_form_is_refused_with_a_command_that_runs_as_it_stands(
    project: Terminal, words: tuple[str, ...], tmp_path: Path
) -> None:
    answer = project.json(*words)
    assert (answer.code, answer.json["result"]) == (3, None)
    (violation,) = answer.json["violations"]
    assert violation["field"].startswith(("inputs.stdin", "inputs.arguments["))
    spoken = project.actum(*words)
    assert "nothing ran" in spoken.aside
    # Greedy to the next backtick that ends a sentence: the command may hold backticks itself.
    match = re.search(r"`((?:printf %s|actum).*?)`[.,]", spoken.aside)
    assert match is not None, spoken.aside
    copied = in_a_shell(project, match[1], tmp_path)
    assert copied.code == 0, (match[1], copied.aside)
    assert copied.text.strip(), match[1]


@pytest.mark.parametrize("content", [b"", b" \n\t\n"])
@pytest.mark.parametrize("tool", ["shell", "python"])
def test_an_empty_program_is_refused_wherever_it_comes_from(
    project: Terminal, tool: str, content: bytes
) -> None:
    (project.folder / "nothing").write_bytes(content)
    given = (
        project.json("exec", tool, stdin=content),
        project.json("exec", tool, "--stdin", "-", stdin=content),
        project.json("exec", tool, "--stdin", "nothing"),
        project.json("exec", tool, "nothing"),
        project.json("check", tool, stdin=content),
    )
    for answer in given:
        assert answer.code == 3
        assert [code for code, _ in answer.violations] == ["PROGRAM_EMPTY"]
        assert answer.json.get("result") is None


def test_a_contract_without_a_program_is_refused_by_its_field(project: Terminal) -> None:
    """Whatever stdin holds: a contract is whole."""
    for stdin in ("", 'stdin: ""', 'stdin: " "', "stdin: {base64: Cg==}"):
        file = project.folder / "contract.yaml"
        file.write_text(f"tool_id: TL-010\ninputs:\n  command: sh\n  {stdin}\n")
        answer = project.json("exec", "-f", "contract.yaml", stdin=b"echo no")
        assert (answer.code, answer.violations) == (3, [("PROGRAM_EMPTY", "inputs.stdin")])


def test_without_stdin_nothing_is_read_and_nothing_runs(project: Terminal) -> None:
    """/dev/null as from cron, a closed stdin, and a terminal."""
    terminal, ours = pty.openpty()
    try:
        for stdin, shell in (
            (subprocess.DEVNULL, "exec"),
            (ours, "exec"),
            (subprocess.DEVNULL, "exec 0<&-; exec"),
        ):
            done = subprocess.run(
                ["/bin/sh", "-c", f'{shell} "$@"', "sh", *COMMAND, "exec", "shell"],
                stdin=stdin,
                capture_output=True,
                cwd=project.folder,
                timeout=LONG_S,
            )
            assert done.returncode == 3, done
            assert b"PROGRAM_EMPTY" in done.stderr
    finally:
        os.close(terminal)
        os.close(ours)


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "ripgrep", "-p", "pattern=1", "-p", "path=one.txt"),
        ("exec", "python", "a.py"),
        ("exec", "shell", "--", "-c", "echo x"),
        ("exec", "shell", "--set", 'inputs.stdin="echo x"'),
        ("sh", "echo x"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_a_pipe_that_nobody_closes_is_not_waited_for(
    project: Terminal, words: tuple[str, ...]
) -> None:
    if "ripgrep" in words and shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    reader, writer = os.pipe()
    try:
        os.write(writer, b"for another reader")
        done = subprocess.run(
            [*COMMAND, *words],
            stdin=reader,
            capture_output=True,
            cwd=project.folder,
            timeout=LONG_S,
        )
        assert done.returncode == 0, done.stderr
        assert waiting_bytes(reader) == len(b"for another reader")
    finally:
        os.close(reader)
        os.close(writer)


def test_commands_in_a_loop_leave_the_lines_of_the_loop(project: Terminal, tmp_path: Path) -> None:
    loop = "printf 'a\\nb\\nc\\n' | while read line; do actum sh \"echo $line\"; done"
    answer = in_a_shell(project, loop, tmp_path)
    assert answer.text == "a\nb\nc\n", answer.aside


def waiting_bytes(descriptor: int) -> int:
    found = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", found)[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "words",
    [
        ("exec", "shell", "--stdin", "-"),
        ("exec", "shell"),
        ("sh",),
        ("exec", "-f", "-"),
        ("exec", "-f", "{fifo}"),
        ("exec", "shell", "--stdin", "{fifo}"),
    ],
    ids=" ".join,
)
def test_a_command_that_reads_a_pipe_that_stalls_ends_with_a_signal(
    project: Terminal, tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    before = project.json("receipts", "list").json["receipts"]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, *(word.format(fifo=fifo) for word in words)],
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.folder,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        if "{fifo}" in words:
            source = os.open(fifo, os.O_WRONLY)  # returns when the command has opened it
            seen = source
        else:
            source, seen = writer, reader
        os.write(source, b"echo started; ")
        deadline = time.monotonic() + LONG_S
        while waiting_bytes(seen):  # until the command has read it, and waits for more
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        said, aside = process.communicate(timeout=LONG_S)
        assert process.returncode == 130, aside
        assert said == b""
        assert aside.decode().strip() == "Cancelled."
    for descriptor in {reader, writer, source}:
        os.close(descriptor)
    assert project.json("receipts", "list").json["receipts"] == before


def test_a_contract_from_a_pipe_runs(project: Terminal, tmp_path: Path) -> None:
    (project.folder / "c.yaml").write_text(
        "tool_id: TL-010\ninputs: {command: sh, stdin: echo y}\n"
    )
    for command in ("actum exec -f - < c.yaml", "cat c.yaml | actum exec -f /dev/stdin"):
        answer = in_a_shell(project, command, tmp_path)
        assert (answer.code, answer.text) == (0, "y\n"), answer.aside


def test_words_after_a_script_are_not_lost(project: Terminal) -> None:
    late = project.actum("sh", "ls -la", "--timeout", "5s")
    assert late.code == 2
    assert "options come before it" in late.aside
    both = project.actum("sh", "--stdin", "a.sh", "echo x")
    assert both.code == 2
    assert "--stdin" in both.aside
