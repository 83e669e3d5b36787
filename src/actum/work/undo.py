"""Undoes a committed work item: a change like any other, with a receipt of its own.

Only if every path that it changed is still as it left it. The content that was stored at the commit
is restored under the same intent that commits use, so a crash leaves all of it or nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.errors import Refused, VerificationFailed
from actum.evidence.verify.work_findings import read_work_receipt
from actum.store.keys import PublicKey, Signer
from actum.value import value
from actum.work.admission import changed_files, entry_text, make_capsule
from actum.work.dependents import Changed, dependents_of, require_none
from actum.work.history import KeptRun
from actum.work.model import Metrics, RunResult, Status, WorkItem
from actum.work.work_receipt import FILE_NAME, After, Before, folder_of, make_receipt
from actum.work.work_records import WorkRecords
from actum.work.work_recovery import Recovering
from actum.workspace import commit
from actum.workspace.index import Index
from actum.workspace.merge import in_the_way
from actum.workspace.space import Space, delta_of
from actum.workspace.tree import Action, Delta, shown, shown_by_0_1

_LOOK = "`actum verify --all` lists everything in this home that differs from the records."


@value
class Undoing:
    """Everything that an undo uses."""

    space: Space
    records: WorkRecords
    signer: Signer
    trusted: Mapping[str, PublicKey]  #: keys whose signatures on receipts count
    clock: Callable[[], datetime]
    recovering: Recovering


def undo_with_dependents(kept: KeptRun, with_: Undoing) -> tuple[tuple[KeptRun, RunResult], ...]:
    """Undo a run and everything that rests on it, the newest first; each has a receipt of its own.

    Refuses before the first one if a path of any of them was changed by something else.
    """
    _require_committed(kept)
    along = dependents_of(kept, with_.records, lambda run: _paths_of(run, with_))
    runs = [*(each.run for each in reversed(along)), kept]
    _require_all_untouched(runs, with_)
    return tuple((run, _undone(run, with_)) for run in runs)


def undo(kept: KeptRun, with_: Undoing) -> RunResult:
    """Restore the state before a run; raises `Refused` if that would undo more."""
    _require_committed(kept)
    if with_.records.stands(kept.run_id):
        require_none(kept, dependents_of(kept, with_.records, lambda run: _paths_of(run, with_)))
    return _undone(kept, with_)


def _require_committed(kept: KeptRun) -> None:
    if kept.result is None or kept.status is not Status.SUCCESS:
        raise Refused(
            "WORK_NOT_COMMITTED",
            f"The run {kept.run_id} changed nothing: it is {kept.status or 'not over'}.",
            remedy="Only a run that succeeded can be undone.",
        )


def _undone(kept: KeptRun, with_: Undoing) -> RunResult:
    space, records = with_.space, with_.records
    before = Before(
        run_id=new_id(),
        item=_item(kept),
        agent_sha256="",
        workspace=space.base,
        started_at=with_.clock(),
    )
    with space.held(alone=True):
        with_.recovering.space(space)
        with space.index() as index:
            state = index.scan(space.base, space.skip).state.hash
            steps, old = space.backward(kept.run_id)
            delta = delta_of(steps, index)
            _require_untouched(delta, index, _left_by(kept, with_), records.undo_of(kept.run_id))
            room = space.run_folder(before.run_id)
            try:
                commit.stage_backward(steps, old, room / "new")
            except BaseException:
                space.drop(room)
                raise
            records.open(before, state)
            after = index.preview(delta)
            last = records.last_success(space.base)
            facts = After(
                before_hash=state,
                base_hash=state,
                capsule=make_capsule(delta, (), ()),
                run_hash="",  # never a duplicate
                engine="undo",
                cap_bytes=0,
                previous_receipt=last[1] if last else None,
                ended_at=with_.clock(),
            )
            result = _result(facts, delta, after.state.hash, space)
            receipt = make_receipt(before, facts, result, with_.signer)
            staged = commit.keep(delta, space.base, room)
            forward = commit.Staged(forward=steps, backward=staged.backward)
            record = records.record(
                before, facts, result, receipt, kept=commit.backward_sha256(forward)
            )
            index.expect_change()
            space.change(room, forward, record, records.close)
            with contextlib.suppress(sqlite3.Error, OSError):
                index.accept(after)  # committed: if this fails, the next scan finds the same
    return result


def _item(kept: KeptRun) -> WorkItem:
    return WorkItem(
        id=f"undo:{kept.run_id}",
        agent_id=kept.item.agent_id,
        description=f"Undo the run {kept.run_id} of {kept.item.id}",
    )


def _require_untouched(
    delta: Delta, index: Index, left: Mapping[str, Json], undone: str | None
) -> None:
    """Require that every path is as the run left it, and that no folder to be removed has new
    content."""
    changed = [
        shown(change.path) or "."
        for change in delta
        for written in {shown(change.path) or ".", shown_by_0_1(change.path)} & left.keys()
        if left[written] != entry_text(change.before)
    ]
    added = in_the_way(delta, index)
    if added is not None and not changed:
        changed = [shown(added)]
    if changed:
        listed = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "")
        raise Refused(
            "UNDO_STALE",
            f"Changed since that run: {listed}."
            + (f" It was undone already, by receipt {undone}." if undone else ""),
            remedy="Undo the newer runs first, newest first; revert edits by hand yourself.",
        )


def _require_all_untouched(runs: Sequence[KeptRun], with_: Undoing) -> None:
    """The same for a sequence of undos, before the first: each path is as the newest of them left
    it, and every other one finds what the undo before it restores."""
    space = with_.space
    restored: dict[str, str | None] = {}
    with space.held(alone=True):
        with_.recovering.space(space)
        with space.index() as index:
            index.scan(space.base, space.skip)
            for kept in runs:
                changed = _states_of(kept, with_)
                steps, _old = space.backward(kept.run_id)
                on_disk = {
                    shown(change.path) or ".": entry_text(change.before)
                    for change in delta_of(steps, index)
                }
                stale = [
                    path
                    for path, (_before, after) in changed.items()
                    if restored.get(path, on_disk.get(path, after)) != after
                ]
                if stale:
                    raise Refused(
                        "UNDO_STALE",
                        f"Changed since {kept.item.id}, by no work item: {', '.join(stale[:5])}.",
                        remedy="Nothing was undone. Revert these edits yourself.",
                    )
                restored |= {path: before for path, (before, _after) in changed.items()}


def _paths_of(kept: KeptRun, with_: Undoing) -> Changed:
    """Folders included, which a receipt names only if nothing in them changed."""
    steps, _old = with_.space.backward(kept.run_id)
    made = frozenset(shown(step.path) for step in steps if step.kind is None)
    return Changed(paths=made | _states_of(kept, with_).keys(), made=made)


def _states_of(kept: KeptRun, with_: Undoing) -> Mapping[str, tuple[str | None, str | None]]:
    """Path -> what it held before a run and after it, by the run's signed receipt."""
    predicate = _receipt_of(kept, with_)
    deltas = predicate["capsule"]["deltas"]
    return {
        target: (before, after) for part in deltas.values() for _, target, before, after in part
    }


def _left_by(kept: KeptRun, with_: Undoing) -> Mapping[str, Json]:
    """The state of each changed path after the run, by its receipt."""
    return {path: after for path, (_before, after) in _states_of(kept, with_).items()}


def _receipt_of(kept: KeptRun, with_: Undoing) -> Mapping[str, Any]:
    envelope = with_.records.envelope(kept.result.receipt_id) if kept.result else None
    if envelope is None:
        raise VerificationFailed(f"The run {kept.run_id} has no receipt here.", remedy=_LOOK)
    predicate = read_work_receipt(envelope, with_.trusted)
    if predicate["run_id"] != kept.run_id:
        raise VerificationFailed(
            f"The stored receipt of the run {kept.run_id} belongs to another run.", remedy=_LOOK
        )
    return predicate


def _result(facts: After, delta: Delta, state: str, space: Space) -> RunResult:
    receipt_id = new_id()
    return RunResult(
        status=Status.SUCCESS,
        receipt_id=receipt_id,
        receipt_path=str(folder_of(space.home, receipt_id) / FILE_NAME),
        modified_files=changed_files(delta, space.base, Action.MODIFIED),
        created_files=changed_files(delta, space.base, Action.CREATED),
        deleted_files=changed_files(delta, space.base, Action.DELETED),
        output_hash=state,
        artifact_hashes={},
        metrics=Metrics(
            delta_size=facts.capsule.delta_size, files_touched=len(facts.capsule.files)
        ),
    )
