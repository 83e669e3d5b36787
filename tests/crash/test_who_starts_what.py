"""Every program that a whole `actum` command starts, as the kernel saw it, and below whom."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .matrix import make_template

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-m", "actum.doors.cli.main")
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)$")
_CHILD = re.compile(r"= (\d+)(?: /\* (\d+) in strace's PID NS \*/)?$")


@dataclass(frozen=True)
class Started:
    pid: int
    program: str
    line: str


@dataclass(frozen=True)
class Traced:
    """Who was forked by whom, and who became what."""

    command: int
    parents: dict[int, int]
    programs: tuple[Started, ...]

    def line_of(self, pid: int) -> list[int]:
        """From a process up to the command itself."""
        line = [pid]
        while line[-1] in self.parents:
            line.append(self.parents[line[-1]])
        return line


def _trace(folder: Path, *words: str, stdin: bytes = b"") -> Traced:
    log = folder / "trace"
    options = ("-f", "-qq", "-s", "4096", "--pidns-translation", "-o", str(log))
    calls = ("-e", "trace=execve,execveat,clone,clone3,fork,vfork")
    subprocess.run(
        ["strace", *options, *calls, *_ACTUM, *words],
        cwd=folder / "template",
        input=stdin,
        capture_output=True,
        check=True,
    )
    parents, programs, command = {}, [], 0
    for text in log.read_text().splitlines():
        if not (line := _LINE.match(text)):
            continue
        pid, call, rest = int(line[1]), line[2], line[3]
        command = command or pid
        if call.startswith("exec"):
            if '"' in rest and not rest.endswith("ENOENT (No such file or directory)"):
                programs.append(Started(pid, rest.split('"')[1], rest))
        elif child := _CHILD.search(rest):
            parents[int(child[2] or child[1])] = pid
    return Traced(command, parents, tuple(programs))


def _strangers(traced: Traced) -> list[str]:
    """Programs that are neither the command, its spawner and opener, nor below a sandbox's init."""
    spawners = {
        each.pid
        for each in traced.programs
        if "actum.sandbox.spawner" in each.line and traced.parents.get(each.pid) == traced.command
    }
    # By an open descriptor, of the jail's own program: no name of a file, and no other words.
    openers = {
        each.pid
        for each in traced.programs
        if '"", ["actum.sandbox.opener", ' in each.line and traced.parents[each.pid] in spawners
    }
    assert len(openers) <= len(spawners)
    found = []
    for each in traced.programs:
        if each.pid == traced.command or each.pid in spawners | openers:
            continue
        line = traced.line_of(each.pid)
        # tool ..., init, spawner, command: at least one process between it and the spawner.
        below = [spawner for spawner in spawners if spawner in line[2:]]
        if not below:
            found.append(f"{each.program} below {line}")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    make_template(folder)
    return folder


@pytest.mark.req("004-78", "004-61")
@pytest.mark.parametrize(
    ("words", "stdin", "program"),
    [
        (("exec", "shell", "--stdin", "-"), b"echo a | cat", "/usr/bin/dash"),
        (("exec", "python", "--stdin", "-"), b"print(1)", "python3"),
        (("try",), b"echo a | cat", "/usr/bin/dash"),
        (("try", "python"), b"print(1)", "python3"),
    ],
    ids=["shell", "python", "try a shell", "try python"],
)
def test_a_tool_is_started_once_and_only_inside_its_sandbox(
    folder: Path, words: tuple[str, ...], stdin: bytes, program: str
):
    traced = _trace(folder, *words, stdin=stdin)
    tools = [
        each
        for each in traced.programs
        if program in each.program and each.pid in traced.parents and "spawner" not in each.line
    ]
    assert len(tools) == 1, [each.line for each in traced.programs]
    assert _strangers(traced) == []


@pytest.mark.req("004-78")
@pytest.mark.parametrize(
    "words",
    [("check", "shell", "--stdin", "-"), ("tools", "list"), ("verify", "--all"), ("doctor",)],
)
def test_a_command_that_is_not_exec_starts_no_tool(folder: Path, words: tuple[str, ...]):
    traced = _trace(folder, *words, stdin=b"true")
    others = [each.line for each in traced.programs if each.pid != traced.command]
    others = [line for line in others if "actum.sandbox.spawner" not in line]
    # The doctor asks the user's own git for one setting.
    question = 'git", "config", "--get", "safe.bareRepository"]'
    assert len([line for line in others if question in line]) == (words == ("doctor",))
    assert [line for line in others if question not in line] == []
