"""What a program in a machine told, by role and check."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from .machine import GUEST, Answer


@dataclass(frozen=True)
class Told:
    ok: bool
    seen: str


class Answers:
    """Every check is answered once; one that was not reached is not answered, and so fails."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._told: dict[tuple[str, str], Told] = {}
        for line in answer.output.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                self._told[row["role"], row["check"]] = Told(row["ok"], row["seen"])

    def require(self, role: str, check: str) -> None:
        told = self._told.get((role, check))
        assert told is not None, f"{role}: {check}: not reached\n{self._answer.output[-4_000:]}"
        assert told.ok, f"{role}: {check}: {told.seen}"

    def seen(self, role: str, check: str) -> str:
        return self._told[role, check].seen

    @property
    def names(self) -> set[tuple[str, str]]:
        return set(self._told)


def program(name: str) -> list[str]:
    """A program of `tests/vm/guest`, with this interpreter: the machine sees the host's files."""
    soak = f"ACTUM_SOAK={os.environ.get('ACTUM_SOAK', '')}"
    return ["/usr/bin/env", soak, str(Path(sys.executable)), str(GUEST / name)]
