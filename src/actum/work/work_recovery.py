"""Recovery after a crash: finishes decided commits, closes open runs, removes leftovers.

Recovery attests only what it observed. The hash of the state that a run froze is durable before the
run starts. If the project is in another state now, and no recorded run led there, the receipt names
the recorded state, the state that was found, and the paths that are missing or changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.ids import new_id
from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.verify.findings import Finding, judged
from actum.store.keys import Signer
from actum.value import replace, value
from actum.work.damage import Damage
from actum.work.history import KeptRun, LostRun, WorkHistory
from actum.work.model import RunResult, Status, WorkItem
from actum.work.work_receipt import Before, make_receipt
from actum.work.work_records import WorkRecords, interrupted, nothing_done
from actum.workspace.commit import Step, pending_intent
from actum.workspace.space import Space, spaces
from actum.workspace.tree import Delta

_GONE = "Its process ended before the commit; nothing of its work was committed."
_KILLED = "Its process was killed before it began; nothing of it ran."
_UNKNOWN = "The state before was not recorded, so it is unknown whether the project changed."
_EDITED = "Files were added to the project since, or files that govern it were edited."


@value
class Recovering:
    """Everything that recovery uses."""

    home: Path
    records: WorkRecords
    signer: Signer
    clock: Callable[[], datetime]

    def all(self, *, wait: bool = False) -> None:
        """Recover every workspace of this home. `wait`: also one that a commit holds now."""
        for space in spaces(self.home):
            while not self._tried(space, wait=wait) and wait:
                time.sleep(0.01)  # a process died in its commit between two checks
        for lost in self.records.lost():
            if lost.workspace != self.home.parent:  # the project was moved or copied since
                self._close(lost, "", Damage(listed=False))

    def _tried(self, space: Space, *, wait: bool) -> bool:
        with space.held(alone=True, wait=False) as alone:
            if alone:
                self.space(space)
                return True
        # Others run here. A commit waits for them, so no commit is unfinished. Runs that died
        # can be closed.
        with space.held(alone=False, wait=wait) as shared:
            if not shared or pending_intent(space.folder) is not None:
                return False
            self._close_lost(space)
            return True

    def space(self, space: Space) -> None:
        """Recover one workspace; requires its exclusive lock."""
        intent = pending_intent(space.folder)

        def finish(record: Mapping[str, Any]) -> None:
            if record:  # a replay's commit has none
                self.records.close(record)
                self._compare_with_commit(space, intent or {})

        held = {lost.run_id for lost in self.records.lost() if space.is_held(lost.run_id)}
        # Compare before the intent is removed: a crash in between repeats both.
        space.recover(finish, held)
        self._close_lost(space)

    def never_began(self, run_id: str, item: WorkItem, agent_sha256: str, workspace: Path) -> None:
        """Record a run whose process was killed before it could record it."""
        before = Before(
            run_id=run_id,
            item=item,
            agent_sha256=agent_sha256,
            workspace=workspace,
            started_at=self.clock(),
        )
        state = _state_now(Space(self.home, workspace))
        self.records.open(before, None)
        self._write(before, state, state, _KILLED, None)

    def _close_lost(self, space: Space) -> None:
        for lost in self.records.lost():
            if lost.workspace == space.base and not space.is_held(lost.run_id):
                self._compare_with_freeze(space, lost)

    def _compare_with_freeze(self, space: Space, lost: LostRun) -> None:
        """Close a run that was not committed."""
        found, damage = _compared(space, lost, self.records)
        self._close(lost, found, damage, by_others=_led_there(space, lost, found, self.records))

    def _compare_with_commit(self, space: Space, intent: Mapping[str, Any]) -> None:
        """Compare after finishing a commit: its receipt was signed before the crash."""
        record = intent["record"]
        wanted = str(record["result"]["output_hash"])
        steps = [Step.read(step) for step in intent["steps"]]
        found, delta = space.compared(wanted, based_on=str(record["before_hash"]), steps=steps)
        # People's edits to a path of the commit were kept on purpose (`left_to_do`).
        own = {step.path for step in steps}
        others = None if delta is None else tuple(each for each in delta if each.path not in own)
        damage = _damage(found, wanted, others)
        if damage is not None and damage.counts:
            run_id = new_id()
            item = WorkItem(
                id=f"check:{record['run_id']}",
                agent_id=str(record["audit"]["agent_id"]),
                description="Compare a commit that recovery finished",
            )
            before = Before(
                run_id=run_id,
                item=item,
                agent_sha256="",
                workspace=space.base,
                started_at=self.clock(),
            )
            self.records.open(before, wanted)
            self._write(before, wanted, found, str(damage), damage)

    def _close(
        self, lost: LostRun, found: str, damage: Damage | None, *, by_others: bool = False
    ) -> None:
        """`by_others`: other runs, with receipts of their own, led from its frozen state here."""
        before = Before(
            run_id=lost.run_id,
            item=lost.item,
            agent_sha256=lost.agent_sha256,
            workspace=lost.workspace,
            started_at=datetime.fromisoformat(lost.started_at),
        )
        reason = _GONE
        if damage is not None:
            reason = f"{_GONE} {damage if damage.counts else _EDITED}"
        elif lost.before_hash is None:
            reason = f"{_GONE} {_UNKNOWN}"
        counted = damage if damage is not None and damage.counts else None
        frozen = lost.before_hash or found
        self._write(before, found if by_others else frozen, found, reason, counted, base=frozen)

    def _write(
        self,
        before: Before,
        before_hash: str,
        found: str,
        reason: str,
        damage: Damage | None,
        base: str | None = None,
    ) -> None:
        result = nothing_done(Status.FAILURE, reason, found, self.home)
        facts = replace(
            interrupted(before_hash, self.clock()), base_hash=base or before_hash, damage=damage
        )
        receipt = make_receipt(before, facts, result, self.signer)
        try:
            self.records.close(self.records.record(before, facts, result, receipt))
        except EvidenceUnavailable:
            # Several processes may recover from one crash, and each of them sees the same row.
            kept = self.records.find(before.run_id)
            if kept is None or kept.status is None:
                raise


def interrupted_findings(home: Path, history: WorkHistory) -> Iterator[Finding]:
    """What recovery would find about interrupted runs. Writes nothing."""
    for lost in history.lost():
        subject = f"work run {lost.run_id}"
        damage: Damage | None = Damage(listed=False)
        if lost.workspace == home.parent:
            space = Space(home, lost.workspace, looks=True)
            if pending_intent(space.folder) is not None:
                detail = "a commit was interrupted; the next work item, or `actum doctor`, ends it"
                yield Finding(subject, "interrupted", True, detail)
                continue
            if space.is_held(lost.run_id):
                detail = "it is ready and was not committed; continue its run"
                yield Finding(subject, "held", True, detail)
                continue
            _found, damage = _compared(space, lost, history)
        counts = damage is not None and damage.counts
        yield judged(subject, "workspace", not counts, str(damage))


def _compared(space: Space, lost: LostRun, records: WorkHistory) -> tuple[str, Damage | None]:
    """The state now, and its differences from a run's frozen state that no recorded run made."""
    if lost.before_hash is None:
        return _state_now(space), None
    found, delta = space.compared(lost.before_hash)
    if _led_there(space, lost, found, records):
        return found, None
    return found, _damage(found, lost.before_hash, delta)


def _led_there(space: Space, lost: LostRun, found: str, records: WorkHistory) -> bool:
    """Whether runs that were committed since led to this state; they have receipts of their own.

    An item of a level works on the level's state: others of it may have been committed before it
    began.
    """
    last = records.last_success(space.base)
    if last is None or last[0] != found:
        return False
    return records.was_committed_since(lost.run_id) or (
        lost.before_hash is not None and records.leads(space.base, lost.before_hash, found)
    )


def accept(kept: KeptRun, with_: Recovering) -> RunResult:
    """Record that a person accepts the project as it is now. Changes no file."""
    if not with_.records.damaged(kept.run_id):
        raise Refused(
            "WORK_NOT_DAMAGED",
            f"The run {kept.run_id} left no damage, or its damage was accepted.",
            remedy="`actum verify --all` names the runs with damage.",
        )
    space = Space(with_.home, with_.home.parent)
    before = Before(
        run_id=new_id(),
        item=WorkItem(
            id=f"accept:{kept.run_id}",
            agent_id=kept.item.agent_id,
            description=f"Accept the project as it is after the run {kept.run_id}",
        ),
        agent_sha256="",
        workspace=space.base,
        started_at=with_.clock(),
    )
    with space.held(alone=True):
        with_.space(space)
        state = space.scan().state.hash
        with_.records.open(before, state)
        result = replace(
            nothing_done(Status.SUCCESS, "", state, with_.home), error=None, denial_reason=None
        )
        last = with_.records.last_success(space.base)
        facts = replace(
            interrupted(state, with_.clock()),
            engine="accept",
            previous_receipt=last[1] if last else None,
        )
        receipt = make_receipt(before, facts, result, with_.signer)
        with_.records.close(with_.records.record(before, facts, result, receipt))
    return result


def _damage(found: str, wanted: str, delta: Delta | None) -> Damage | None:
    if found == wanted or delta == ():
        return None
    return Damage(listed=False) if delta is None else Damage.without_edits(delta)


def _state_now(space: Space) -> str:
    try:
        return space.scan().state.hash
    except (OSError, Refused):
        return ""
