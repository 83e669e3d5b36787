"""Determinism levels: what each needs, which are unsupported, and whether a claim was checked.

D0 promises nothing. D1 pins the environment (zone, locale, seeds, SOURCE_DATE_EPOCH). D2 is
virtual: a fixed wall clock, repeatable random bytes, files without an age (`steady.c`, preloaded),
fixed addresses, no network. D2 works for programs that use the C library. D3 would need the kernel
to answer so, whatever a program does, and is refused: a program reads the clock in the vDSO without
a system call that could be intercepted.

A D2 execution is carried out twice, if that can do no harm, and both runs are compared
(`second_run`). Equal runs are evidence, not proof; the record names what differs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import StrEnum

from actum import native
from actum.contract.call import PROVIDED, EffectivePolicy, Executable
from actum.contract.model import Contract, Determinism, Json
from actum.errors import Refused, Violation
from actum.value import value

_STEADY = "steady.so"
_PT_INTERP = 3


class Verified(StrEnum):
    MATCH = "MATCH"
    DIFF = "DIFF"
    NOT_RUN = "NOT_RUN"


@value
class Determination:
    """The level that was claimed, and the result of the check."""

    level: Determinism
    verified: Verified = Verified.NOT_RUN
    runs: int = 1
    varied: tuple[str, ...] = ()
    why: str = ""  #: no second run, or an inconclusive one
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
    """Why the level that `contract` asks for is not possible."""
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
    """(files, environment) that make the clock, random bytes and file times repeatable."""
    if _is_static(executable.path):
        why = (
            f"D2 reaches programs that ask the C library, and {executable.path} is linked"
            " statically: it would see the real clock."
        )
        raise Refused("DETERMINISM_UNSUPPORTED", why, remedy="Ask for D1.")
    library = native.content(native.DETERMINISM)
    return {_STEADY: library}, {"LD_PRELOAD": f"{PROVIDED}/{_STEADY}"}


def _is_static(path: str) -> bool:
    """Whether it is an ELF program without a dynamic loader; a script's interpreter has one."""
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


def _objection(field: str, shown: str, message: str) -> Violation:
    return Violation(
        code="DETERMINISM_UNSUPPORTED", field=field, value=shown, message=f"{field}: {message}"
    )
