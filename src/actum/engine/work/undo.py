"""Taking a committed work item back: a change like any other, with a receipt of its own.

Only if every path it changed is still as it left it. What was kept when it was committed is put
back under the same intent that commits use, so a crash leaves all of it or nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.engine.work.admission import make_capsule, told_of
from actum.engine.work.model import Metrics, RunResult, Status, WorkItem
from actum.engine.work.receipt import FILE_NAME, After, Before, folder_of, make_receipt
from actum.engine.work.records import KeptRun, WorkRecords
from actum.errors import Refused, VerificationFailed
from actum.evidence.work_findings import read_work_receipt
from actum.store.keys import PublicKey, Signer
from actum.value import value
from actum.workspace import commit
from actum.workspace.commit import Step
from actum.workspace.index import Index
from actum.workspace.merge import in_the_way
from actum.workspace.space import Space
from actum.workspace.tree import Change, Delta, Entry, shown

_LOOK = "`actum verify --all` tells what else in this home is not as it was recorded."


@value
class Undoing:
    """What taking back works with."""

    space: Space
    records: WorkRecords
    signer: Signer
    trusted: Mapping[str, PublicKey]  #: whose signature makes a receipt one
    clock: Callable[[], datetime]


def undo(kept: KeptRun, with_: Undoing) -> RunResult:
    """Bring back what was there before a run; raises `Refused` if that would undo more."""
    space, records = with_.space, with_.records
    if kept.result is None or kept.status is not Status.SUCCESS:
        raise Refused(
            "WORK_NOT_COMMITTED",
            f"The run {kept.run_id} changed nothing: it is {kept.status or 'not over'}.",
            remedy="Only a run that succeeded can be undone.",
        )
    before = Before(
        run_id=new_id(),
        item=_item(kept),
        agent_sha256="",
        workspace=space.base,
        started_at=with_.clock(),
    )
    with space.held(alone=True):
        space.recover(records.close)
        with space.index() as index:
            state = index.scan(space.base, space.skip).state.hash
            steps, old = space.backward(kept.run_id)
            delta = _delta(steps, index)
            _require_untouched(delta, index, _left_by(kept, with_), records.undo_of(kept.run_id))
            records.open(before)
            room = space.room(before.run_id)
            shutil.copytree(old, room / "new", symlinks=True)
            after = index.preview(delta)
            last = records.last_success(space.base)
            facts = After(
                before_hash=state,
                base_hash=state,
                capsule=make_capsule(delta, (), ()),
                run_hash="",  # no duplicate of anything
                engine="undo",
                cap_bytes=0,
                previous_receipt=last[1] if last else None,
                ended_at=with_.clock(),
            )
            result = _result(facts, after.state.hash, space)
            receipt = make_receipt(before, facts, result, with_.signer)
            staged = commit.keep(delta, space.base, room)
            forward = commit.Staged(forward=steps, backward=staged.backward)
            record = records.record(before, facts, result, receipt, None)
            index.expect_change()
            space.change(room, forward, record, records.close)
            index.accept(after)
    return result


def _item(kept: KeptRun) -> WorkItem:
    return WorkItem(
        id=f"undo:{kept.run_id}",
        agent_id=kept.item.agent_id,
        description=f"Take back the run {kept.run_id} of {kept.item.id}",
    )


def _require_untouched(
    delta: Delta, index: Index, left: Mapping[str, Json], undone: str | None
) -> None:
    """Of what the run left, everything is as it was, and nothing came into what goes."""
    told = {shown(change.path) or ".": told_of(change.before) for change in delta}
    changed = [name for name in told if name in left and told[name] != left[name]]
    added = in_the_way(delta, index)
    if added is not None and not changed:
        changed = [shown(added)]
    if changed:
        listed = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "")
        raise Refused(
            "UNDO_STALE",
            f"Changed since that run: {listed}."
            + (f" It was taken back already, by receipt {undone}." if undone else ""),
            remedy="Undo the newer runs first, newest first; edits by hand have to be taken back"
            " by hand.",
        )


def _left_by(kept: KeptRun, with_: Undoing) -> Mapping[str, Json]:
    """What a run left where, as its receipt tells it."""
    envelope = with_.records.envelope(kept.result.receipt_id) if kept.result else None
    if envelope is None:
        raise VerificationFailed(f"The run {kept.run_id} has no receipt here.", remedy=_LOOK)
    predicate: Any = read_work_receipt(envelope, with_.trusted)
    if predicate["run_id"] != kept.run_id:
        raise VerificationFailed(
            f"The receipt kept for the run {kept.run_id} is about another run.", remedy=_LOOK
        )
    deltas = predicate["capsule"]["deltas"]
    return {target: after for part in deltas.values() for _, target, _, after in part}


def _delta(steps: tuple[Step, ...], index: Index) -> Delta:
    return tuple(
        sorted(
            (Change(step.path, index.entry(step.path), _entry(step)) for step in steps),
            key=lambda change: change.path,
        )
    )


def _entry(step: Step) -> Entry | None:
    if step.kind is None:
        return None
    return Entry(step.kind, step.mode, bytes.fromhex(step.digest))


def _result(facts: After, state: str, space: Space) -> RunResult:
    receipt_id = new_id()
    named: dict[str, list[str]] = {"create": [], "edit": [], "delete": []}
    for artifact in facts.capsule.artifacts:
        named[artifact.type].append(f"{space.base}/{artifact.path}")
    return RunResult(
        status=Status.SUCCESS,
        receipt_id=receipt_id,
        receipt_path=str(folder_of(space.home, receipt_id) / FILE_NAME),
        modified_files=tuple(named["edit"]),
        created_files=tuple(named["create"]),
        deleted_files=tuple(named["delete"]),
        output_hash=state,
        artifact_hashes={},
        metrics=Metrics(
            delta_size=facts.capsule.delta_size, files_touched=len(facts.capsule.files)
        ),
    )
