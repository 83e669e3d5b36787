"""`actum` as a person or a program at a terminal has it: a process, its streams, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "actum.doors.cli.main")


@dataclass(frozen=True)
class Answer:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def aside(self) -> str:
        return self.stderr.decode()

    @property
    def problems(self) -> dict[str, str]:
        """Field -> message, of a malformed contract."""
        return {each["field"]: each["message"] for each in self.json["error"]["problems"]}

    @property
    def violations(self) -> list[tuple[str, str]]:
        return [(each["code"], each["field"]) for each in self.json["violations"]]


@dataclass(frozen=True)
class Terminal:
    folder: Path

    def actum(self, *words: str, stdin: bytes = b"") -> Answer:
        done = subprocess.run(
            [*COMMAND, *words], input=stdin, capture_output=True, cwd=self.folder, timeout=120
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def json(self, *words: str, stdin: bytes = b"") -> Answer:
        """With `--json` right after the command, and exactly one document on stdout."""
        answer = self.actum(words[0], "--json", *words[1:], stdin=stdin)
        json.loads(answer.stdout)
        return answer

    def shell(self, script: str | bytes, *words: str) -> Answer:
        content = script if isinstance(script, bytes) else script.encode()
        return self.json("exec", "shell", "--stdin", "-", *words, stdin=content)

    def contract(self, text: str) -> Answer:
        file = self.folder / f"contract-{uuid.uuid4()}.yaml"
        file.write_text(text)
        return self.json("exec", "-f", file.name)

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )


def alive(mark: str) -> list[str]:
    """The command lines on this host, inside any sandbox or out, that mention `mark`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(b" ".join(words).decode())
    return found


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def unique_nap() -> str:
    """A duration for `sleep` that no other process on this host uses."""
    return f"60.{uuid.uuid4().int % 10**12:012}"
