"""Run one command in a machine with another kernel, on this host's files, within a deadline.

Both machines see the whole file system of the host read-only, have their own /tmp, /proc and /sys,
and mount version 2 of the cgroups alone. The command runs as root in there; its output and exit
code come back. A machine that does not answer in time is killed, and that is an error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from . import packages

GUEST = Path(__file__).resolve().parent / "guest"


def preparation() -> str:
    """Shell lines for the first process: mounts, and a checkout that everyone can enter."""
    return f"repository={packages.REPOSITORY}\n" + (GUEST / "mounts.sh").read_text()


class NoAnswer(Exception):
    """The machine ended, or was ended, without an exit code."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    output: str
    seconds: float  #: from power on to power off


class Processes:
    """What a machine consists of on the host. Everything ends with this context, by its id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with open(self._folder / f"{name}.log", "wb") as log:
            self._started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self._folder,
                    start_new_session=True,
                )
            )

    def wait_for_file(self, path: Path, until: float) -> None:
        while not path.exists():
            if time.monotonic() > until or self._started[-1].poll() is not None:
                raise NoAnswer(self.logs())
            time.sleep(0.02)

    def wait(self, until: float) -> None:
        """For the last one that was started."""
        try:
            self._started[-1].wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"no answer in time\n{self.logs()}") from None

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4_000:]}"
            for path in sorted([*self._folder.glob("*.log"), *self._folder.glob("answer")])
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                # Its own session: the helpers that it forked go too.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
