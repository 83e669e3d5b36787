"""An id on the command line: whole, or its first characters where they mean one id only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from actum.evidence.id_prefixes import IdKind, beginning_with

if TYPE_CHECKING:
    from actum.store.snapshot import Reader

_MOST_SHOWN = 10
_EVIDENCE = "evidence:"

#: What a command takes that shows one execution.
EXECUTIONS = (IdKind.EXECUTION, IdKind.RECEIPT)
RECEIPTS = (*EXECUTIONS, IdKind.WORK_RECEIPT, IdKind.WORK_RUN, IdKind.RUN_RECEIPT)
WORK = (IdKind.WORK_RECEIPT, IdKind.WORK_RUN)
RUNS = (IdKind.RUN,)


def full_id(database: Reader, given: str, kinds: Iterable[IdKind]) -> str:
    """The id that `given` means; `given` itself if nothing begins with it.

    Raises a usage error, with the candidates, if several ids begin with it.
    """
    begun = given.startswith(_EVIDENCE)
    found = beginning_with(database, given, kinds)
    if not found and begun:
        # The reference that Actum itself gives to evidence: `evidence:` and the id.
        found = beginning_with(database, given.removeprefix(_EVIDENCE), (IdKind.EVIDENCE,))
    meant = dict.fromkeys(each.full for each in found)
    if len(meant) > 1:
        shown = [f"  {each.kind} {each.full}" for each in found[:_MOST_SHOWN]]
        more = [f"  and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
        raise AmbiguousId(
            f"{given!r} is the beginning of several ids. Give more characters:", [*shown, *more]
        )
    if not meant:
        return given
    (full,) = meant
    return f"{_EVIDENCE}{full}" if begun and not full.startswith(_EVIDENCE) else full


class AmbiguousId(click.UsageError):
    """Several ids begin with the given text."""

    def __init__(self, message: str, candidates: list[str]) -> None:
        super().__init__(message)
        self.candidates = candidates

    def format_message(self) -> str:
        return "\n".join([self.message, *self.candidates])
