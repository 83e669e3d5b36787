"""The requests that are measured, by kind and number. Another number is another request.

`Bare` starts the programs itself, `Governed` asks a runtime. Of Actum only `Runtime.exec` and
`Runtime.python` are used, so that an older version serves as well; nothing here imports it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RG = shutil.which("rg")
PYTHON = "/usr/bin/python3"
_SH = ("/bin/sh", "-s", "--")
_NOTES = "notes.txt"
_NEEDLE = "needle"

#: Kind -> what differs from one request to the next.
KINDS: Mapping[str, str] = {
    "script": "shell, a new script on stdin",
    "arguments": "ripgrep, a new pattern" if RG else "shell, a new argument",
    "directory": "shell, a new working directory",
    "snippet": "`rt.python`, a new snippet",
    "program": "the `python` tool, a new program on stdin",
    "in turn": "all but the directory in turn without a pause, each new",
}
_IN_TURN = ("script", "arguments", "snippet", "program")
REPEATED = 0  #: the number of the request that is made again and again


class WrongAnswer(Exception):
    """A request got a wrong answer."""


def prepare(root: Path, kind: str, number: int) -> None:
    """Creates what has to exist before the request. Not part of it, and not timed."""
    if kind == "directory":
        _directory(root, number).mkdir(exist_ok=True)
    elif not (root / _NOTES).exists():
        (root / _NOTES).write_text(f"a haystack\na {_NEEDLE}\n")


def require_answer(root: Path, kind: str, number: int, answers: list[str]) -> None:
    """Raise unless the tools did what was requested."""
    for (step, word), answer in zip(_steps(kind, number), answers, strict=True):
        wanted = {"directory": str(_directory(root, number))}.get(step, word)
        if step == "arguments" and RG:
            wanted = _NEEDLE
        if wanted not in answer:
            raise WrongAnswer(f"{step} {number}: {answer[:200]!r}")


def _steps(kind: str, number: int) -> list[tuple[str, str]]:
    """The requests of a kind, each with a word that no other request has."""
    if kind == "in turn":
        return [(step, f"turn{step}{number}") for step in _IN_TURN]
    return [(kind, f"{kind}{number}")]


def _directory(root: Path, number: int) -> Path:
    return root / f"directory-{number}"


class Bare:
    """Each request by `subprocess.run`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ask(self, kind: str, number: int) -> list[str]:
        return [self._one(step, number, word) for step, word in _steps(kind, number)]

    def _one(self, step: str, number: int, word: str) -> str:
        match step:
            case "script":
                return self._run(_SH, f"echo {word}")
            case "arguments" if RG:
                return self._run((RG, "--json", "--no-heading", f"{_NEEDLE}|{word}", _NOTES))
            case "arguments":
                return self._run((*_SH, word), "echo $1")
            case "directory":
                return self._run(_SH, "pwd", _directory(self._root, number))
            case "snippet":
                return self._run((PYTHON, "-c", f"print('{word}')"))
            case _:
                return self._run((PYTHON, "-"), f"print('{word}')")

    def _run(self, argv: tuple[str, ...], stdin: str = "", cwd: Path | None = None) -> str:
        done = subprocess.run(
            argv, input=stdin.encode(), capture_output=True, check=True, cwd=cwd or self._root
        )
        return done.stdout.decode()


class Governed:
    """Each request by a runtime."""

    def __init__(self, root: Path, runtime: Any) -> None:
        self._root = root
        self._runtime = runtime

    def ask(self, kind: str, number: int) -> list[str]:
        return [self._one(step, number, word) for step, word in _steps(kind, number)]

    def _one(self, step: str, number: int, word: str) -> str:
        rt = self._runtime
        match step:
            case "script":
                result = rt.exec("shell", stdin=f"echo {word}")
            case "arguments" if RG:
                searched = {"pattern": f"{_NEEDLE}|{word}", "path": _NOTES}
                result = rt.exec("ripgrep", parameters=searched)
            case "arguments":
                result = rt.exec("shell", word, stdin="echo $1")
            case "directory":
                result = rt.exec("shell", stdin="pwd", cwd=_directory(self._root, number))
            case "snippet":
                result = rt.python(f"print('{word}')")
            case _:
                result = rt.exec("python", stdin=f"print('{word}')")
        stdout: str = result.check().result.stdout
        return stdout
