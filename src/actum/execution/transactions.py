"""An execution's changes as a transaction: begun before the tool, settled when it is gone.

the tool ended by itself   committed, whatever its exit code
Actum ended it             discarded (deadline, limit, violation, cancel), unless the project
                           wants such changes too
a path was overtaken       conflict: nothing is committed, a person decides
a governing name changed   held: nothing is committed, a person decides
it cannot be compared      discarded; the tool has run, and the result says why

A kept tool is one transaction, from its start to its end (`execution.kept_tool`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from actum.approvals.requests import Approvals, Request, State
from actum.capture.model import (
    Capture,
    Closed,
    DiffSummary,
    Exited,
    Failed,
    Signalled,
    Workspace,
)
from actum.contract import path_patterns
from actum.contract.call import Plan, bound
from actum.contract.governing_names import is_git_directory
from actum.errors import Refused
from actum.evidence.executions import Executions
from actum.evidence.log import Log
from actum.evidence.records import audit
from actum.policy.gates import GOVERNING_CHANGES
from actum.runners.init_request import writable_folders
from actum.value import replace, value
from actum.workspace import kept_changes
from actum.workspace.changes import Changes, joined_path
from actum.workspace.copies import Bounds
from actum.workspace.governing_changes import exists_on_host, governed
from actum.workspace.layer_folders import LayerFolders
from actum.workspace.retention import Keep, recover
from actum.workspace.transaction import Transaction
from actum.workspace.transaction_record import RECORD, Kept
from actum.workspace.tree import Action, Change

#: Endings that are the tool's own.
_BY_ITSELF = (Exited, Signalled, Closed, Failed)
_MOST_NAMED = 20
#: Changed paths that the evidence record names.
_MOST_LISTED = 100


@value
class Settlement:
    """What the project, and the request, want done with changes."""

    home: str
    root: str
    protected_names: tuple[str, ...]
    commit_when_stopped: bool = False
    engine: str = "auto"  #: auto, overlay or copy
    copied: Bounds = Bounds()  #: how much the copy engine copies at most
    last_wins: tuple[str, ...] = ()  #: patterns of paths on which there is no conflict
    keep: Keep = Keep(count=100, size_bytes=1_000 << 20)


class Begun:
    """A transaction that takes the changes of one plan, until they are settled or abandoned."""

    def __init__(
        self, plan: Plan, settlement: Settlement, made_ahead: LayerFolders | None = None
    ) -> None:
        self._settlement = settlement
        self._name = f"{plan.trace.execution_id}-{plan.trace.attempt}"
        folders = writable_folders(plan.policy)
        self._transaction = Transaction.begin(
            Path(settlement.home),
            self._name,
            folders,
            plan.sealed,
            secrets=bool(plan.secrets),
            folders=made_ahead,
        )
        layers = {layer.grant: layer.folder for layer in self._transaction.layers}
        self.plan = bound(replace(plan, layers=layers))
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
        """Decide, now that no process of the tool is left. What cannot be compared is dropped: the
        tool has run, so this is no refusal any more.

        `stopped`: Actum ended the tool. `wanted` is ``commit``, ``hold`` (a person looks at the
        changes first) or ``discard``. `ask` files that the named transaction with this diff waits
        for an approval, and returns the request.
        """
        diff = None
        try:
            workspace, changes = self._settled(stopped=stopped, wanted=wanted, ask=ask)
            diff = summary_of(changes.paths(), workspace.state, workspace.diff_sha256)
        except Refused as refusal:
            if self._transaction.is_decided:
                raise
            self._transaction.discard()
            workspace = Workspace(state="discarded", why=(refusal.message,))
        workspace = replace(workspace, engine=self._transaction.engine)
        return replace(capture, workspace=workspace, diff=diff)

    def _settled(
        self, *, stopped: bool, wanted: str, ask: Callable[[str, str], str]
    ) -> tuple[Workspace, Changes]:
        if wanted == "discard" or (stopped and not self._settlement.commit_when_stopped):
            changes = self._transaction.look()
            self._transaction.discard()
            return _workspace(changes, "discarded" if changes else "unchanged", ()), changes
        governs: list[str] = []

        def judge(changes: Changes) -> tuple[str, ...]:
            governs.extend(governing(changes, self._settlement))
            if wanted == "hold" and not governs:
                return tuple(path for path, _change in changes.paths())
            return tuple(governs)

        def conflicts(changes: Changes) -> tuple[str, ...]:
            return conflicting(changes, self._settlement)

        changes, state = self._transaction.commit(judge, conflicts=conflicts)
        workspace = _workspace(
            changes, state, conflicts(changes) if state == "conflict" else tuple(governs)
        )
        workspace = replace(workspace, records=_records(self._transaction))
        if state == "held" and governs:
            workspace = replace(workspace, request_id=ask(self._name, workspace.diff_sha256))
        return workspace, changes


def run(
    plan: Plan,
    settlement: Settlement,
    carry_out: Callable[[Plan, Callable[[], None]], Capture],
    *,
    takes_overlay: Callable[[Plan, str], bool],
    wanted: str = "commit",
    ask: Callable[[str, str], str],
    made_ahead: LayerFolders | None = None,
) -> Capture:
    """Carry out a plan whose changes are a transaction.

    `carry_out` runs the plan it is given and calls back right before the tool starts. The other
    words as for `Begun.copy` and `Begun.settle`.
    """
    begun = Begun(plan, settlement, made_ahead)
    try:
        begun.copy(takes_overlay)
        capture = carry_out(begun.plan, begun.wait)
        # No process of the tool writes any more once its control group is gone.
        capture = replace(capture, leftovers=capture.left(), cleanup=None)
        stopped = not isinstance(capture.ending, _BY_ITSELF)
        return begun.settle(capture, stopped=stopped, wanted=wanted, ask=ask)
    except BaseException:
        begun.abandon()
        raise


def _records(transaction: Transaction) -> tuple[str, ...]:
    """The digests of what is kept of this attempt, and of those before it."""
    home, name = transaction.folder.parent.parent, transaction.folder.name
    execution, _, attempt = name.rpartition("-")
    before = (Kept.find(home, f"{execution}-{number}") for number in range(1, int(attempt)))
    earlier = tuple(kept.record_sha256 if kept else "" for kept in before)
    return (*earlier, transaction.record_sha256)


def governing(changes: Changes, settlement: Settlement) -> list[str]:
    """The changed paths that decide what will be executed later."""
    deltas = ((layer.grant, found.delta) for layer, found in changes.layers)
    found = governed(deltas, settlement.root, settlement.protected_names, exists_on_host)
    return [joined_path(folder, path) for folder, path in found]


def conflicting(changes: Changes, settlement: Settlement) -> tuple[str, ...]:
    """The paths that another program has changed, without those on which the last one wins.

    Never without a governing name, and never without a path in a git directory: a branch may be
    called `build`.
    """
    overtaken = changes.overtaken
    if not overtaken or not settlement.last_wins:
        return overtaken
    root = os.fsencode(settlement.root).rstrip(b"/")
    spared = {
        joined_path(layer.grant, path)
        for layer, found in changes.layers
        for path in found.overtaken
        if last_wins_at(os.fsencode(layer.grant).rstrip(b"/"), path, root, settlement.last_wins)
    }
    spared.difference_update(governing(changes, settlement) if spared else ())
    return tuple(path for path in overtaken if path not in spared)


def last_wins_at(grant: bytes, path: bytes, root: bytes, patterns: tuple[str, ...]) -> bool:
    """Whether the last writer wins on a path below `grant`. Patterns are relative to `root`."""
    whole = grant + b"/" + path
    inside = whole[len(root) + 1 :] if whole.startswith(root + b"/") else path
    if not path_patterns.match(patterns, os.fsdecode(inside)):
        return False
    folder = os.path.dirname(whole)
    while folder.strip(b"/"):
        if is_git_directory(partial(_holds, folder)):
            return False
        folder = os.path.dirname(folder)
    return b".git" not in inside.split(b"/")


def _holds(folder: bytes, name: str) -> bool:
    return os.path.lexists(folder + b"/" + name.encode())


def _workspace(changes: Changes, state: str, why: tuple[str, ...]) -> Workspace:
    return Workspace(
        state=state,
        created=changes.count(Action.CREATED),
        modified=changes.count(Action.MODIFIED),
        deleted=changes.count(Action.DELETED),
        diff_sha256=changes.sha256 if changes else "",
        why=why[:_MOST_NAMED],
        left_out=changes.left_out[:_MOST_NAMED],
    )


def summary_of(paths: Iterable[tuple[str, Change]], state: str, sha256: str) -> DiffSummary | None:
    """The changes as the evidence record has them; ``None`` if there are none."""
    found = list(paths)
    if not found:
        return None
    counts = Counter(change.action for _path, change in found)
    return DiffSummary(
        state=state,
        created=counts[Action.CREATED],
        modified=counts[Action.MODIFIED],
        deleted=counts[Action.DELETED],
        sha256=sha256,
        files=tuple(
            {"action": change.action.value, "path": path} for path, change in found[:_MOST_LISTED]
        ),
        unnamed=max(0, len(found) - _MOST_LISTED),
    )


class Transactions:
    """Changes of executions that are over: shown, decided about, undone, and kept within bounds."""

    def __init__(
        self,
        settlement: Settlement,
        approvals: Approvals,
        executions: Executions,
        log: Log,
        clock: Callable[[], datetime],
    ) -> None:
        self._settlement = settlement
        self._home = Path(settlement.home)
        self._approvals = approvals
        self._executions = executions
        self._log = log
        self._clock = clock

    def all(self) -> tuple[Kept, ...]:
        """The oldest first."""
        return tuple(sorted(Kept.all(self._home), key=lambda kept: kept.begun_at))

    def find(self, name: str) -> Kept:
        """By the id of the execution (its last attempt with changes), or of the transaction."""
        attempts = self.attempts(name)
        if not attempts:
            raise Refused(
                "CHANGES_UNKNOWN",
                f"No changes of {name[:80]!r} are kept.",
                remedy="`actum diff` lists those that are. An execution that changed nothing, or"
                " whose changes were dropped, has none.",
            )
        return attempts[-1]

    def attempts(self, name: str) -> tuple[Kept, ...]:
        """Those of one execution, in their order; or the one transaction of that name.

        Refuses if there were some that are not kept any longer.
        """
        names = (each for each in Kept.names(self._home) if name in (each, each.rpartition("-")[0]))
        found = [kept for each in names if (kept := Kept.find(self._home, each))]
        if not found:
            self._require_not_removed(name)
        return tuple(sorted(found, key=lambda kept: kept.attempt))

    def undo(self, kept: Kept) -> None:
        kept_changes.undo(kept, self._tell)

    def decide(self, kept: Kept, *, commit: bool, over: bool = False) -> str:
        """A person's word about changes that wait. What governs the project takes an approval."""
        request = self._approvals.about_commit_of(kept.name)
        if commit and request is not None:
            _require_approved(kept, request)
        return self._decide(kept, commit=commit, over=over, approved=request is not None)

    def shown_for(self, request: Request) -> Kept | None:
        """The changes that a request of `ask_to_commit` is about, exactly as a decision is bound to
        them; ``None`` if they are decided, lost or others by now."""
        name = request.need.target
        kept = Kept.find(self._home, name)
        return kept if kept is not None and kept.diff_sha256 == request.call_sha256 else None

    def require_shown(self, request_id: str) -> None:
        """Before an approval is recorded: it needs changes that can be looked at."""
        request = self._approvals.find(request_id)
        waits = request.gate == GOVERNING_CHANGES and request.state is State.PENDING
        if waits and self.shown_for(request) is None:
            raise Refused(
                "CHANGES_DIFFER",
                f"The changes of {request.request_id} are not kept any more, or are not those that"
                " it was made for.",
                remedy="`actum verify --all` tells what in this home is not as recorded; deny the"
                " request.",
            )

    def approved(self, request: Request) -> str:
        """Carry out what was decided about a request of `ask_to_commit`."""
        kept = self.find(request.need.target)
        _require_same(kept, request)
        commit = request.state is State.APPROVED
        return self._decide(kept, commit=commit, over=False, approved=commit)

    def recover(self) -> None:
        """Finish what a process that was killed has begun; remove what is not kept any longer."""
        recover(self._home, self._settlement.keep, self._tell)

    def older(self, than: datetime) -> tuple[Kept, ...]:
        """Transactions that are over since before a time, and that `remove_older` removes."""
        before_ns = int(than.timestamp() * 1e9)
        return tuple(
            kept
            for kept in self.all()
            if not kept.waits and (kept.folder / RECORD).stat().st_mtime_ns < before_ns
        )

    def remove_older(self, than: datetime) -> None:
        """Remove the stored changes of transactions that are over since before a time, each with a
        record. They can neither be shown nor undone afterwards."""
        since = replace(self._settlement.keep, since_ns=int(than.timestamp() * 1e9))
        recover(self._home, since, self._tell)

    def _decide(self, kept: Kept, *, commit: bool, over: bool, approved: bool) -> str:
        def conflicts(changes: Changes) -> tuple[str, ...]:
            return conflicting(changes, self._settlement)

        def require(changes: Changes) -> None:
            # Changes that waited for another reason: since then a name may have become a
            # governing one, as HEAD does where another execution has put objects and refs.
            governs = () if approved else governing(changes, self._settlement)
            if governs:
                raise _governs_by_now(kept, governs)

        return kept_changes.decide(
            kept,
            commit_it=commit,
            over=over,
            conflicts=conflicts,
            require=require,
            tell=self._tell,
        )

    def _require_not_removed(self, name: str) -> None:
        known = self._executions.get(name) or self._executions.get(name.rpartition("-")[0])
        found = (known.result or {}).get("workspace") if known else None
        if found and found["state"] == "committed":
            keep = self._settlement.keep
            raise Refused(
                "CHANGES_REMOVED",
                f"The changes of {name[:80]} were committed. Their contents were removed by"
                f" `actum gc --keep` or the limit ({keep.count} transactions,"
                f" {keep.size_bytes >> 20} MiB).",
                remedy="They cannot be shown or undone any more. `[workspace] keep` and `keep_mb`"
                " set the limit; the receipt has the digest of the changes.",
            )

    def _tell(self, kept: Kept) -> None:
        state = kept.state
        if kept.is_retired:
            state = "discarded" if kept.waits else "removed"
        with self._log.page() as page:
            page.append(
                audit.changes(
                    kept.execution_id,
                    state,
                    kept.diff_sha256,
                    self._clock(),
                    transaction=kept.name,
                    record_sha256=kept.record_sha256,
                )
            )


def _require_approved(kept: Kept, request: Request) -> None:
    if request.state is State.APPROVED:
        _require_same(kept, request)  # decided, and its process was killed before the commit
    elif request.state is State.DENIED:
        raise Refused(
            "APPROVAL_DENIED",
            f"{kept.name}: the commit was denied by {request.decided_by}.",
            remedy=f"`actum diff {kept.execution_id} --discard` drops the changes.",
        )
    else:
        raise Refused(
            "APPROVAL_REQUIRED",
            f"{kept.name} changes names that decide what is executed later: "
            f"{', '.join(kept.why[:3])}.",
            remedy=f"`actum approvals approve {request.request_id} --by WHO --why TEXT`"
            " commits it.",
        )


def _governs_by_now(kept: Kept, paths: Sequence[str]) -> Refused:
    return Refused(
        "CHANGES_GOVERN",
        f"{kept.name} would change names that decide what is executed later, which they did not"
        f" when the tool ended: {', '.join(paths[:3])}.",
        remedy=f"Nothing was changed. Drop the changes (`actum diff {kept.execution_id} --discard`)"
        " and run the tool again; they are then held for an approval.",
    )


def _require_same(kept: Kept, request: Request) -> None:
    if kept.diff_sha256 != request.call_sha256:
        raise Refused(
            "CHANGES_DIFFER",
            f"{kept.name} does not hold the changes that were approved.",
            remedy="`actum verify --all` tells what else in this home is not as recorded.",
        )
