"""Determinism levels: what each takes, which are out of reach, and whether a claim was checked.

D0 promises nothing. D1 pins what a tool is told (zone, locale, seeds, SOURCE_DATE_EPOCH). D2 is
virtual: a fixed wall clock, repeatable random bytes, files without an age (`steady.c`, preloaded),
fixed addresses, no network. D2 reaches programs that ask the C library; D3 would mean that the
kernel itself answers so, whatever a program does, and is refused: the clock in the vDSO is read
without a system call that could be intercepted.

A D2 execution is carried out twice, if that can do no harm, and both are compared. Twice equal is
evidence, not proof; what differs is said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import StrEnum

from actum import native
from actum.capture.model import Cancelled, Capture, Exited
from actum.contract.call import PROVIDED, EffectivePolicy, Executable, Plan
from actum.contract.model import Contract, Determinism, Json
from actum.errors import Refused, Violation
from actum.evidence.trace import TraceEvent
from actum.runners.base import Cancel, Runner
from actum.value import value

_STEADY = "steady.so"
#: Differs between the two runs, for all we can do about it.
_VARIED = ("time", "process", "sandbox")
_PT_INTERP = 3
_THROUGH_SERVERS = ("api", "mcp")


class Verified(StrEnum):
    MATCH = "MATCH"
    DIFF = "DIFF"
    NOT_RUN = "NOT_RUN"


@value
class Determination:
    """What was claimed, and what became of the claim."""

    level: Determinism
    verified: Verified = Verified.NOT_RUN
    runs: int = 1
    varied: tuple[str, ...] = ()
    why: str = ""  #: there was no second run, or it says nothing
    differs: tuple[str, ...] = ()  #: ``stdout``, ``stderr``, ``exit_code``, ``files``

    def document(self) -> dict[str, Json]:
        return {
            "level": self.level.value,
            "verified": self.verified.value,
            "runs": self.runs,
            "varied": list(self.varied),
            "why": self.why,
            "differs": list(self.differs),
        }


def objections(contract: Contract, policy: EffectivePolicy) -> Iterator[Violation]:
    """Why the level that `contract` asks for cannot be had."""
    level = contract.determinism
    if level is Determinism.D3:
        yield _objection(
            "determinism",
            level.value,
            "D3 would have to hold whatever the tool does, and nothing here can: a program reads"
            " the clock from the kernel's own page, without a call that could be answered."
            " Ask for D2.",
        )
    elif level is Determinism.D2 and policy.network.enabled:
        yield _objection(
            "sandbox.network",
            "enabled",
            "D2 has no network: what comes from outside is never the same. Ask for D1, or offline.",
        )


def steady(executable: Executable) -> tuple[dict[str, bytes], dict[str, str]]:
    """(files, environment) that make a tool's clock, random bytes and file times repeatable."""
    if _is_static(executable.path):
        why = (
            f"D2 reaches programs that ask the C library, and {executable.path} is linked"
            " statically: it would see the real clock."
        )
        raise Refused("DETERMINISM_UNSUPPORTED", why, remedy="Ask for D1.")
    library = native.content(native.DETERMINISM)
    return {_STEADY: library}, {"LD_PRELOAD": f"{PROVIDED}/{_STEADY}"}


def _is_static(path: str) -> bool:
    """An ELF program without an interpreter of its own. A script is run by one that has one."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return False
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(offset)
        table = file.read(size * count)
    kinds = (struct.unpack_from("<I", table, size * index)[0] for index in range(count))
    return _PT_INTERP not in kinds


def look_again(
    plan: Plan, runner: Runner, capture: Capture, cancel: Cancel | None, level: Determinism
) -> Determination:
    """Carry `plan` out a second time, if that can do no harm, and compare."""
    if level is not Determinism.D2:
        return Determination(level=level, why="only D2 is checked by a second run")
    if plan.adapter.kind in _THROUGH_SERVERS:
        return Determination(level=level, why="what a server answers is its own affair")
    if plan.policy.write:
        why = "the tool may write into the project, so a second run would not start as the first"
        return Determination(level=level, why=why)
    if not isinstance(capture.ending, Exited):
        return Determination(level=level, why="the tool did not end by itself")
    second = runner.run(plan, _unheard, None, cancel)
    if isinstance(second.ending, Cancelled):
        return Determination(level=level, why="cancelled during the second run", runs=2)
    differs = tuple(_differences(capture, second))
    return Determination(
        level=level,
        verified=Verified.DIFF if differs else Verified.MATCH,
        runs=2,
        varied=_VARIED,
        differs=differs,
    )


def _unheard(event: TraceEvent) -> None:
    """The trace tells of the run whose output is handed out, and of this one in one event."""


def _differences(first: Capture, second: Capture) -> Iterator[str]:
    if first.stdout.sha256 != second.stdout.sha256:
        yield "stdout"
    if first.stderr.sha256 != second.stderr.sha256:
        yield "stderr"
    if first.ending != second.ending:
        yield "exit_code"
    if _files(first) != _files(second):
        yield "files"


def _files(capture: Capture) -> list[tuple[str, str, str]]:
    return [(item.kind, item.path, item.sha256) for item in capture.collected]


def _objection(field: str, shown: str, message: str) -> Violation:
    return Violation(
        code="DETERMINISM_UNSUPPORTED", field=field, value=shown, message=f"{field}: {message}"
    )
