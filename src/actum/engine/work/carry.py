"""One work item from freeze to receipt. Only this module knows the order of the steps.

    freeze -> run under guard -> admission -> tests on a throwaway view -> commit -> receipt

It runs in a process with a mount namespace of its own (`engine.work.process`). Until the commit
is decided nothing of the workspace was touched, so "thaw" is to let go of the view. Every end is
recorded; an error on the way is a failure that carries its message. What is done between freeze and
tests is in `attempt`.
"""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.engine.work import diff, replay
from actum.engine.work.admission import changed_files, exact_path
from actum.engine.work.attempt import (
    MOVED,
    require_mergeable,
    require_nothing_governs,
    retest,
    work,
)
from actum.engine.work.hands import Agent, Ended
from actum.engine.work.model import Rehearsed, RunResult, Status, WorkItem
from actum.engine.work.receipt import FILE_NAME, After, folder_of, make_receipt
from actum.engine.work.records import nothing_done
from actum.engine.work.run import Run, Shop, begun, seen, tell
from actum.errors import Refused
from actum.workspace import commit
from actum.workspace.index import Index
from actum.workspace.tree import Action


def execute_work_item(item: WorkItem, agent: Agent, shop: Shop, run_id: str) -> RunResult:
    """Carry out one work item. A result for every outcome."""
    run = begun(item, agent, shop, run_id)
    try:
        work(run, agent, shop, record=True)
        run.wait()
        tell(run, shop, "ready")
        return _brought_in(run, shop)
    except Ended as end:
        return _thawed(run, shop, end.status, end.reason)
    except Exception as error:  # the contract: any error is a failure with its text
        kept = shop.records.find(run_id)
        if kept is not None and kept.result is not None:
            return kept.result  # it was committed, and what failed came after that
        if _decided(run, shop):
            raise  # past the commit point there is only forward: the next process goes there
        return _thawed(run, shop, Status.FAILURE, str(error) or type(error).__name__)


def execute_again(item: WorkItem, agent: Agent, shop: Shop) -> str:
    """Do the work of a recorded run once more, on a folder of its own; the hash it leads to.

    Neither admitted nor recorded as a run: this is verification.
    """
    run = begun(item, agent, shop, new_id())
    work(run, agent, shop, judged=False)
    with shop.space.held(alone=True), shop.space.index() as index:
        return _apply(run, shop, index)


def execute_trial(item: WorkItem, agent: Agent, shop: Shop) -> Rehearsed:
    """Carry out an item on a copy of the workspace: all rules and tests, and no record of a run."""
    run = begun(item, agent, shop, new_id())
    try:
        work(run, agent, shop)
        run.wait()
        tell(run, shop, "ready")
        while (changes := _tried(run, shop)) is None:
            retest(run, shop)
    except Ended as end:
        shop.space.drop(run.room)
        return Rehearsed(status=end.status, reason=end.reason)
    except Exception as error:  # noqa: BLE001 -- as for a run that is no rehearsal
        shop.space.drop(run.room)
        return Rehearsed(status=Status.FAILURE, reason=str(error) or type(error).__name__)
    return Rehearsed(status=Status.SUCCESS, reason=None, changes=changes)


def _tried(run: Run, shop: Shop) -> tuple[Mapping[str, Json], ...] | None:
    """What it changes, brought into the copy for those who come after it."""
    space = shop.space
    with space.held(alone=True), space.index() as index:
        if not _fits(run, shop, index, index.scan(space.base, space.skip).state.hash):
            return None
        shown = diff.changes(run.delta, space.base, run.room / "new")
        changes = tuple(change.document() for change in shown)
        _apply(run, shop, index)
    return changes


def _apply(run: Run, shop: Shop, index: Index) -> str:
    """Bring a staged delta into a folder that is nobody's project; the hash it leads to."""
    after = index.preview(run.delta)
    staged = commit.keep(run.delta, shop.space.base, run.room)
    shop.space.change(run.room, staged, {}, lambda _record: None)
    index.accept(after)
    return after.state.hash


def _fits(run: Run, shop: Shop, index: Index, now: str) -> bool:
    """Whether it may be brought into the state `now`; false if its tests have not seen that."""
    if now != run.state:
        require_mergeable(run, index, shop, now)
    require_nothing_governs(run, shop)
    return run.item.test_command is None or now == run.tested_on


def _decided(run: Run, shop: Shop) -> bool:
    intent = commit.pending_intent(shop.space.folder)
    return intent is not None and intent["room"] == run.room.name


def _brought_in(run: Run, shop: Shop) -> RunResult:
    """Commit it; if others came first, not before its tests have passed on top of their work."""
    while (result := _committed(run, shop)) is None:
        retest(run, shop)
    return result


def _committed(run: Run, shop: Shop) -> RunResult | None:
    """Step 5: the state after, its receipt, and the commit that makes both true together.

    ``None`` if its tests have not seen this state.
    """
    space, records = shop.space, shop.records
    with space.held(alone=True), space.index() as index:
        last = records.last_success(space.base)
        paths = [change.path for change in run.delta]
        scanned = space.seen(index, last[0] if last else None, paths)
        now, run.looked = scanned.state.hash, run.looked and scanned.looked
        if not _fits(run, shop, index, now):
            return None
        if records.in_history(run.run_hash):
            raise Ended(Status.DENIED, f"Duplicate run (already in history): {run.run_hash}")
        after = index.preview(run.delta)
        staged = commit.keep(run.delta, space.base, run.room)
        result = _success(run, shop, after.state.hash)
        facts = _after(run, shop, now, last[1] if last else None)
        receipt = make_receipt(run.before, facts, result, shop.signer)
        script = replay.make_script(
            run.item,
            run.before.run_id,
            after.state.hash,
            space.home,
            space.base,
            replay.head_commit(space.base),
        )
        kept = commit.backward_sha256(staged)
        record = records.record(run.before, facts, result, receipt, script=script, kept=kept)
        index.expect_change()
        space.change(run.room, staged, record, records.close)
        index.accept(after)  # should it fail, the next scan sees the same
    return result


def _success(run: Run, shop: Shop, state: str) -> RunResult:
    receipt_id = run.before.receipt_id
    folder = folder_of(shop.space.home, receipt_id)
    base = shop.space.base
    return RunResult(
        status=Status.SUCCESS,
        receipt_id=receipt_id,
        receipt_path=str(folder / FILE_NAME),
        modified_files=changed_files(run.delta, base, Action.MODIFIED),
        created_files=changed_files(run.delta, base, Action.CREATED),
        deleted_files=changed_files(run.delta, base, Action.DELETED),
        output_hash=state,
        artifact_hashes={
            exact_path(change.path, base): change.after.digest.hex()
            for change in run.delta
            if change.after is not None and change.after.is_file
        },
        metrics=run.metrics(),
        test_output=run.test_output,
        proof_script=str(folder / replay.script_name(run.item)),
    )


def _thawed(run: Run, shop: Shop, status: Status, reason: str) -> RunResult:
    """Nothing was committed: the view is gone, and that the state is as before is looked at."""
    space = shop.space
    space.drop(run.room)
    try:
        state = seen(run, shop).state.hash
    except (OSError, Refused) as error:
        state, reason = "", f"{reason} (The project cannot be read: {error})"
    if not run.recorded:
        shop.records.open(run.before, None)
    run.state = run.state or state
    last = shop.records.last_success(space.base)
    moved = state != run.state and (last is None or last[0] != state)
    if state and moved and reason != MOVED:
        reason = f"{reason} ({MOVED})"
    result = nothing_done(
        status,
        reason,
        state,
        space.home,
        receipt_id=run.before.receipt_id,
        metrics=run.metrics(),
        test_output=run.test_output,
    )
    facts = _after(run, shop, state or run.state, None)
    receipt = make_receipt(run.before, facts, result, shop.signer)
    shop.records.close(shop.records.record(run.before, facts, result, receipt))
    return result


def _after(run: Run, shop: Shop, before_hash: str, previous: str | None) -> After:
    return After(
        before_hash=before_hash,
        base_hash=run.state,
        capsule=run.capsule,
        run_hash=run.run_hash,
        engine=run.engine,
        cap_bytes=shop.cap_bytes,
        looked=run.looked,
        test_exit=run.test_exit,
        tested_on=run.tested_on or run.state,
        previous_receipt=previous,
        ended_at=shop.clock(),
    )
