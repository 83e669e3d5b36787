"""An execution's changes as a transaction: begun before the tool, settled when it is gone.

the tool ended by itself   committed, whatever its exit code
Actum ended it             discarded (deadline, limit, violation, cancel), unless the project
                           wants such changes too
a path was overtaken       conflict: nothing is committed, a person decides
a governing name changed   held: nothing is committed, a person decides

A tool that is kept running is one transaction, from its start to its end (`engine.server`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from actum.capture.model import Capture, Closed, Exited, Failed, Signalled, Workspace
from actum.contract.call import Plan
from actum.contract.governing_names import GOVERNING
from actum.engine.approvals import Approvals, Request, State
from actum.errors import Refused
from actum.evidence import audit
from actum.evidence.log import Log
from actum.policy.gates import GOVERNING_CHANGES
from actum.policy.governing import held_back
from actum.registry.looks import Looks
from actum.runners.request import writable_folders
from actum.value import replace, value
from actum.workspace.copies import Bounds
from actum.workspace.transaction import Changes, Kept, Transaction
from actum.workspace.tree import Action

#: Endings that are the tool's own.
_BY_ITSELF = (Exited, Signalled, Closed, Failed)
_MOST_NAMED = 20


@value
class Settlement:
    """What the project, and the request, want done with changes."""

    home: str
    root: str
    protected_names: tuple[str, ...]
    commit_when_stopped: bool = False
    engine: str = "auto"  #: auto, overlay or copy
    copied: Bounds = Bounds()  #: how much the copy engine copies at most


class Begun:
    """A transaction that takes the changes of one plan, until they are settled or abandoned."""

    def __init__(self, plan: Plan, settlement: Settlement) -> None:
        self._settlement = settlement
        self._name = f"{plan.trace.execution_id}-{plan.trace.attempt}"
        folders = writable_folders(plan.policy)
        self._transaction = Transaction.begin(
            Path(settlement.home),
            self._name,
            folders,
            plan.sealed,
            secrets=bool(plan.secrets),
        )
        layers = {layer.grant: layer.folder for layer in self._transaction.layers}
        self.plan = replace(plan, layers=layers)
        #: To be called right before the tool starts.
        self.wait = self._transaction.wait
        #: Where something fails: drops the changes, unless a commit has begun or a person decides.
        self.abandon = self._transaction.abandon

    def copy(self, takes_overlay: Callable[[Plan, str], bool]) -> None:
        """Copy the folders that are to be copied, before the tool starts. `takes_overlay` finds out
        whether a folder of a plan with layers can be under an overlay."""
        engine = self._settlement.engine
        for layer in self._transaction.layers:
            if engine == "copy" or (engine == "auto" and not takes_overlay(self.plan, layer.grant)):
                deny = self.plan.policy.deny
                self._transaction.copy(layer, deny, self._settlement.copied)

    def settle(
        self, capture: Capture, *, stopped: bool, wanted: str, ask: Callable[[str, str], str]
    ) -> Capture:
        """Decide, now that no process of the tool is left.

        `stopped`: Actum ended the tool. `wanted` is ``commit``, ``hold`` (a person looks at the
        changes first) or ``discard``. `ask` files that the named transaction with this diff waits
        for an approval, and returns the request.
        """
        if wanted == "discard" or (stopped and not self._settlement.commit_when_stopped):
            changes = self._transaction.look()
            self._transaction.discard()
            told = _told(changes, "discarded" if changes else "unchanged", ())
            return replace(capture, workspace=replace(told, engine=self._transaction.engine))
        governs: list[str] = []

        def judge(changes: Changes) -> tuple[str, ...]:
            governs.extend(governing(changes, self._settlement))
            if wanted == "hold" and not governs:
                return tuple(path for path, _change in changes.paths())
            return tuple(governs)

        changes, state = self._transaction.commit(judge)
        told = _told(changes, state, changes.overtaken if state == "conflict" else tuple(governs))
        if state == "held" and governs:
            told = replace(told, request_id=ask(self._name, told.diff_sha256))
        return replace(capture, workspace=replace(told, engine=self._transaction.engine))


def run(
    plan: Plan,
    settlement: Settlement,
    carry_out: Callable[[Plan, Callable[[], None]], Capture],
    *,
    takes_overlay: Callable[[Plan, str], bool],
    wanted: str = "commit",
    ask: Callable[[str, str], str],
) -> Capture:
    """Carry out a plan whose changes are a transaction.

    `carry_out` runs the plan it is given and calls back right before the tool starts. The other
    words as for `Begun.copy` and `Begun.settle`.
    """
    begun = Begun(plan, settlement)
    try:
        begun.copy(takes_overlay)
        capture = carry_out(begun.plan, begun.wait)
        # No process of the tool writes any more once its control group is gone.
        capture = replace(capture, leftovers=capture.left(), clearing=None)
        stopped = not isinstance(capture.ending, _BY_ITSELF)
        return begun.settle(capture, stopped=stopped, wanted=wanted, ask=ask)
    except BaseException:
        begun.abandon()
        raise


def governing(changes: Changes, settlement: Settlement) -> list[str]:
    """The changed paths that decide what will be executed later."""
    after = {path: change.after is not None for path, change in changes.paths()}

    def exists(path: str) -> bool:
        return after[path] if path in after else os.path.lexists(path)

    changed = ((path, change.after is None) for path, change in changes.paths())
    held = set(held_back(changed, settlement.root, settlement.protected_names, exists))
    led_to = tuple(f"{path}/" for path in _led_to(settlement.root))
    return [path for path in after if path in held or f"{path}/".startswith(led_to)]


def _led_to(root: str) -> Iterator[str]:
    """Where a governing name leads that is a link: every link on the way, and the end."""
    for path in (f"{root}/{name}" for name in GOVERNING):
        if os.path.islink(path):
            looks = Looks()
            yield from looks.links_on(path)
            yield looks.real(path)


def _told(changes: Changes, state: str, why: tuple[str, ...]) -> Workspace:
    return Workspace(
        state=state,
        created=changes.count(Action.CREATED),
        modified=changes.count(Action.MODIFIED),
        deleted=changes.count(Action.DELETED),
        diff_sha256=changes.sha256 if changes else "",
        why=why[:_MOST_NAMED],
        left_out=changes.left_out[:_MOST_NAMED],
    )


class Transactions:
    """Changes of executions that are over: shown, decided about, and undone."""

    def __init__(
        self, settlement: Settlement, approvals: Approvals, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._home = Path(settlement.home)
        self._approvals = approvals
        self._log = log
        self._clock = clock

    def all(self) -> tuple[Kept, ...]:
        return tuple(Kept.all(self._home))

    def find(self, name: str) -> Kept:
        """By the id of the execution (its last attempt with changes), or of the transaction."""
        attempts = self.attempts(name)
        if not attempts:
            raise Refused(
                "CHANGES_UNKNOWN",
                f"No changes of {name[:80]!r} are kept.",
                remedy="`actum diff` lists those that are. An execution that changed nothing, or"
                " whose changes were dropped, has none; of older ones they are removed"
                " (`[workspace] keep`).",
            )
        return attempts[-1]

    def attempts(self, name: str) -> tuple[Kept, ...]:
        """Those of one execution, in their order; or the one transaction of that name."""
        found = [kept for kept in self.all() if name in (kept.name, kept.execution_id)]
        return tuple(sorted(found, key=lambda kept: kept.attempt))

    def undo(self, kept: Kept) -> None:
        kept.undo()
        self._tell(kept, "undone")

    def decide(self, kept: Kept, *, commit: bool, over: bool = False) -> str:
        """A person's word about changes that wait. What governs the project takes an approval."""
        if commit and kept.state == "held" and (request := self._request(kept)) is not None:
            raise Refused(
                "APPROVAL_REQUIRED",
                f"{kept.name} changes names that decide what is executed later: "
                f"{', '.join(kept.why[:3])}.",
                remedy=f"`actum approvals approve {request.request_id} --by WHO --why TEXT`"
                " commits it.",
            )
        state = kept.decide(commit_it=commit, over=over)
        self._tell(kept, state)
        return state

    def approved(self, request: Request) -> str:
        """Carry out what was decided about a request of `ask_to_commit`."""
        kept = self.find(request.need.target)
        if kept.diff_sha256 != request.call_sha256:
            raise Refused(
                "CHANGES_DIFFER",
                f"{kept.name} does not hold the changes that were approved.",
                remedy="`actum verify --all` tells what else in this home is not as recorded.",
            )
        state = kept.decide(commit_it=request.state is State.APPROVED)
        self._tell(kept, state)
        return state

    def _request(self, kept: Kept) -> Request | None:
        waiting = self._approvals.latest(undecided=True, limit=10_000)
        return next(
            (
                each
                for each in waiting
                if each.gate == GOVERNING_CHANGES and each.need.target == kept.name
            ),
            None,
        )

    def _tell(self, kept: Kept, state: str) -> None:
        with self._log.page() as page:
            page.append(audit.changes(kept.execution_id, state, kept.diff_sha256, self._clock()))
