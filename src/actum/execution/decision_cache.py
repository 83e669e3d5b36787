"""Decision cache: the decision about a request, for the next request that is equal to it.

A decision depends on the request, the registry entry, the project's settings and the file system,
and on nothing else. So a cached decision is used if

* the request is equal except for id, time, requester and purpose (`contract_json.request_key`);
* the entry and the settings are the same objects. The registry returns the same entry only for the
  same signed pin and a folder with the same stamps;
* the file system gives the same answers now (`registry.path_snapshot`): each step of each path,
  link targets, modes, the executable's device, inode, ctime and size.

Everything else that can change is checked each time and never cached: the lock and the tool's
status, approvals, golden outputs, the content of input files, secrets, budgets, the runner's own
limits. Only a decision without objections is cached, and none that rests on an approval.

A cli adapter checks of stdin only its size, and that a program is not empty, and passes it on
unchanged, so requests that differ only in stdin share a decision; each gets its own proof.
"""

from __future__ import annotations

from collections.abc import Hashable

from actum.contract.call import Plan
from actum.contract.contract_json import request_key
from actum.contract.limits import STDIN_BYTES
from actum.contract.model import Contract, Determinism
from actum.contract.snippet_order import FRAME
from actum.policy.policy_settings import PolicySettings
from actum.registry.model import Entry
from actum.registry.path_snapshot import PathSnapshot
from actum.value import value

_MOST_STDIN = 65_536  #: a decision about more is not cached


@value
class CachedDecision:
    """One decision. It holds the objects that its key names by id, so that no id is reused."""

    entry: Entry
    settings: PolicySettings
    plan: Plan  #: its trace, label and perhaps stdin are those of the first request
    operation: str
    input_digest: str
    snapshot: PathSnapshot


class DecisionCache:
    """The latest decisions of one project. Shared by threads."""

    def __init__(self, most: int = 256) -> None:
        self.kept: dict[Hashable, CachedDecision] = {}
        self._most = most

    def find(self, key: Hashable | None) -> CachedDecision | None:
        found = None if key is None else self.kept.get(key)
        return found if found is not None and found.snapshot.hold() else None

    def keep(self, key: Hashable | None, made: CachedDecision) -> None:
        if key is None or not made.snapshot.lasting or len(made.plan.stdin) > _MOST_STDIN:
            return
        if len(self.kept) >= self._most:
            self.kept.clear()
        self.kept[key] = made


def key_of(contract: Contract, entry: Entry, settings: PolicySettings) -> Hashable | None:
    """The key of a decision; ``None`` if it must not be cached."""
    inputs, request = contract.inputs, request_key(contract)
    if (
        request is None
        or inputs.input_files  # their content is read
        or entry.program is not None
        or contract.determinism is Determinism.D2  # and so is the program
    ):
        return None
    stdin, cli = inputs.stdin, entry.adapter.cli
    if cli is not None and cli.program is not None and not (stdin or b"").strip():
        return None  # refused, or the program is in a file, whose content is read
    if stdin is not None:
        passed_on = cli is not None
        if len(stdin) > (STDIN_BYTES if passed_on else _MOST_STDIN) or stdin.startswith(FRAME):
            return None  # its size is judged
        if passed_on:
            stdin = None
    return id(entry), id(settings), request, stdin
