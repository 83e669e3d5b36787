"""Precedents: what was judged of a request, for the next one that is equal to it.

Judging is a function of the request, of the registry entry, of the project's settings and of what
the file system answers, and of nothing else. So a judgement is used again if

* the request is equal in everything but its id, its time, who asks and what for
  (`contract.wire.request_key`);
* the entry and the settings are the very objects it was judged with. The registry gives out the
  same entry only for the same signed pin and a folder that is the same down to every stamp;
* every question that was put to the file system has the same answer now (`registry.looks`): each
  step of each path, what links lead to, modes, the executable's device, inode, ctime and size.

What is live in another way is no part of it and is asked each time, before and after: the lock and
the tool's status, approvals, golden outputs, the content of input files, secrets, budgets, the
runner's own limits. Only what nothing stood against is kept, and nothing that rests on an approval.

What a cli adapter is given on stdin is judged by its size alone and passed on as it is, so requests
that differ in nothing else have a precedent in common; each gets a proof of its own.
"""

from __future__ import annotations

from collections.abc import Hashable

from actum.contract.call import Plan
from actum.contract.limits import STDIN_BYTES
from actum.contract.model import Contract, Determinism
from actum.contract.wire import request_key
from actum.policy.settings import PolicySettings
from actum.registry.looks import Looks
from actum.registry.model import Entry
from actum.value import value

_MOST_STDIN = 65_536  #: one that was given more waits for the next that is given less


@value
class Precedent:
    """One judgement. It holds what its key names by identity, so that nothing else can be it."""

    entry: Entry
    settings: PolicySettings
    plan: Plan  #: its trace and label are of the request that was judged, and perhaps its stdin
    operation: str
    input_digest: str
    looks: Looks


class Precedents:
    """The latest judgements of one project. Shared by threads."""

    def __init__(self, most: int = 256) -> None:
        self.kept: dict[Hashable, Precedent] = {}
        self._most = most

    def find(self, key: Hashable | None) -> Precedent | None:
        found = None if key is None else self.kept.get(key)
        return found if found is not None and found.looks.hold() else None

    def keep(self, key: Hashable | None, precedent: Precedent) -> None:
        if key is None or not precedent.looks.lasting or len(precedent.plan.stdin) > _MOST_STDIN:
            return
        if len(self.kept) >= self._most:
            self.kept.clear()
        self.kept[key] = precedent


def key_of(contract: Contract, entry: Entry, settings: PolicySettings) -> Hashable | None:
    """What a judgement is kept under; ``None`` if this one is made each time."""
    inputs, request = contract.inputs, request_key(contract)
    if (
        request is None
        or inputs.input_files  # their content is looked at
        or entry.program is not None
        or contract.determinism is Determinism.D2  # and so is the program
    ):
        return None
    stdin = inputs.stdin
    if stdin is not None:
        passed_on = entry.adapter.cli is not None
        if len(stdin) > (STDIN_BYTES if passed_on else _MOST_STDIN):
            return None
        if passed_on:
            stdin = None
    return id(entry), id(settings), request, stdin
