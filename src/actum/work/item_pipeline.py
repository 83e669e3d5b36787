"""One work item from freeze to receipt. Only this module knows the order of the steps.

    freeze -> run under guard -> admission -> tests on a throwaway view -> commit -> receipt

It runs in a process with a mount namespace of its own (`item_process`). Nothing is written to the
workspace before the commit is decided, so "thaw" only discards the view. Every end is recorded; an
error is a failure with the error's message. `execute_item` has the steps from freeze to tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.errors import Refused
from actum.work import diff, level, replay_script
from actum.work.admission import changed_files, duplicate, exact_path
from actum.work.execute_item import (
    MOVED,
    require_mergeable,
    require_nothing_governs,
    retest,
    work,
)
from actum.work.held_item import HELD, Held, hold, taken_up
from actum.work.item_state import ItemContext, Run, begun, seen, tell
from actum.work.model import Rehearsed, RunResult, Status, WorkItem
from actum.work.tool_access import Agent, Ended
from actum.work.work_receipt import FILE_NAME, After, folder_of, make_receipt
from actum.work.work_records import nothing_done
from actum.workspace import commit
from actum.workspace.index import Index
from actum.workspace.tree import Action


def execute_work_item(
    item: WorkItem, agent: Agent, context: ItemContext, run_id: str
) -> RunResult | Held:
    """Run one work item. Returns a result for every outcome, or says that it is held."""
    run = begun(item, agent, context, run_id)

    def do() -> RunResult | Held:
        work(run, agent, context, record=True)
        run.wait()
        if tell(run, context, "ready") == level.HOLD:
            hold(run, context)
            return HELD
        return _brought_in(run, context)

    return _to_its_end(run, context, do)


def execute_held(item: WorkItem, context: ItemContext, run_id: str) -> RunResult:
    """Commit a held item. Returns a result for every outcome. An item that cannot be taken up is
    not held any longer: recovery closes it, and it runs again."""
    try:
        run = taken_up(item, context, run_id)
    except BaseException:
        context.space.let_go(run_id)
        raise
    result = _to_its_end(run, context, lambda: _brought_in(run, context))
    assert isinstance(result, RunResult)  # noqa: S101 -- only `hold` makes another
    return result


def _to_its_end(
    run: Run, context: ItemContext, do: Callable[[], RunResult | Held]
) -> RunResult | Held:
    try:
        return do()
    except Ended as end:
        return _thawed(run, context, end.status, end.reason)
    except Exception as error:  # the contract: any error is a failure with its text
        kept = context.records.find(run.before.run_id)
        if kept is not None and kept.result is not None:
            return kept.result  # it was committed; the error came later
        if _decided(run, context):
            raise  # past the commit point there is no way back: the next process finishes it
        return _thawed(run, context, Status.FAILURE, str(error) or type(error).__name__)


def execute_again(item: WorkItem, agent: Agent, context: ItemContext) -> str:
    """Repeat the work of a recorded run on a separate folder; returns the resulting hash.

    Neither admitted nor recorded as a run: this is verification.
    """
    run = begun(item, agent, context, new_id())
    work(run, agent, context, judged=False)
    with context.space.held(alone=True), context.space.index() as index:
        return _apply(run, context, index)


def execute_trial(item: WorkItem, agent: Agent, context: ItemContext) -> Rehearsed:
    """Run an item on a copy of the workspace: with all rules and tests, without a record."""
    run = begun(item, agent, context, new_id())
    try:
        work(run, agent, context)
        run.wait()
        tell(run, context, "ready")
        while (changes := _tried(run, context)) is None:
            retest(run, context)
    except Ended as end:
        context.space.drop(run.room)
        return Rehearsed(status=end.status, reason=end.reason)
    except Exception as error:  # noqa: BLE001 -- as for a run that is no rehearsal
        context.space.drop(run.room)
        return Rehearsed(status=Status.FAILURE, reason=str(error) or type(error).__name__)
    return Rehearsed(status=Status.SUCCESS, reason=None, changes=changes)


def _tried(run: Run, context: ItemContext) -> tuple[Mapping[str, Json], ...] | None:
    """Its changes, applied to the copy for the items after it."""
    space = context.space
    with space.held(alone=True), space.index() as index:
        if not _fits(run, context, index, index.scan(space.base, space.skip).state.hash):
            return None
        shown = diff.changes(run.delta, space.base, run.room / "new")
        changes = tuple(change.document() for change in shown)
        _apply(run, context, index)
    return changes


def _apply(run: Run, context: ItemContext, index: Index) -> str:
    """Apply a staged delta to a folder that is not a project; returns the resulting hash."""
    after = index.preview(run.delta)
    staged = commit.keep(run.delta, context.space.base, run.room)
    context.space.change(run.room, staged, {}, lambda _record: None)
    index.accept(after)
    return after.state.hash


def _fits(run: Run, context: ItemContext, index: Index, now: str) -> bool:
    """Whether it may be applied to the state `now`; false if its tests did not run on that."""
    if now != run.state:
        require_mergeable(run, index, context, now)
    require_nothing_governs(run, context, context.space.base)
    return run.item.test_command is None or now == run.tested_on


def _decided(run: Run, context: ItemContext) -> bool:
    intent = commit.pending_intent(context.space.folder)
    return intent is not None and intent["room"] == run.room.name


def _brought_in(run: Run, context: ItemContext) -> RunResult:
    """Commit it; if others were committed first, only after its tests passed on their state."""
    while (result := _committed(run, context)) is None:
        retest(run, context)
    return result


def _committed(run: Run, context: ItemContext) -> RunResult | None:
    """Step 5: the state after, its receipt, and the commit that makes both true together.

    ``None`` if its tests did not run on this state.
    """
    space, records = context.space, context.records
    with space.held(alone=True), space.index() as index:
        last = records.last_success(space.base)
        paths = [change.path for change in run.delta]
        scanned = space.seen(index, last[0] if last else None, paths)
        now, run.looked = scanned.state.hash, run.looked and scanned.looked
        if not _fits(run, context, index, now):
            return None
        if records.in_history(run.run_hash):
            raise Ended(Status.DENIED, duplicate(run.run_hash))
        after = index.preview(run.delta)
        staged = commit.keep(run.delta, space.base, run.room)
        result = _success(run, context, after.state.hash)
        facts = _after(run, context, now, last[1] if last else None)
        receipt = make_receipt(run.before, facts, result, context.signer)
        script = replay_script.make_script(
            run.item,
            run.before.run_id,
            after.state.hash,
            space.home,
            space.base,
            replay_script.head_commit(space.base),
        )
        kept = commit.backward_sha256(staged)
        record = records.record(run.before, facts, result, receipt, script=script, kept=kept)
        index.expect_change()
        space.change(run.room, staged, record, records.close)
        index.accept(after)  # if this fails, the next scan finds the same
    return result


def _success(run: Run, context: ItemContext, state: str) -> RunResult:
    receipt_id = run.before.receipt_id
    folder = folder_of(context.space.home, receipt_id)
    base = context.space.base
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
        proof_script=str(folder / replay_script.script_name(run.item)),
    )


def _thawed(run: Run, context: ItemContext, status: Status, reason: str) -> RunResult:
    """Nothing was committed: the view is discarded, and the state is compared with the one
    before."""
    space = context.space
    if not run.held:  # else recovery would close it now: its first process has ended
        space.drop(run.room)
    try:
        with space.held(alone=False):  # not in the middle of another item's commit
            state = seen(run, context).state.hash
    except (OSError, Refused) as error:
        state, reason = "", f"{reason} (The project cannot be read: {error})"
    if not run.recorded:
        context.records.open(run.before, None)
    run.state = run.state or state
    last = context.records.last_success(space.base)
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
    facts = _after(run, context, state or run.state, None)
    receipt = make_receipt(run.before, facts, result, context.signer)
    context.records.close(context.records.record(run.before, facts, result, receipt))
    if run.held:
        space.drop(run.room)
    return result


def _after(run: Run, context: ItemContext, before_hash: str, previous: str | None) -> After:
    return After(
        before_hash=before_hash,
        base_hash=run.state,
        capsule=run.capsule,
        run_hash=run.run_hash,
        engine=run.engine,
        cap_bytes=context.cap_bytes,
        looked=run.looked,
        test_exit=run.test_exit,
        tested_on=run.tested_on or run.state,
        previous_receipt=previous,
        ended_at=context.clock(),
    )
