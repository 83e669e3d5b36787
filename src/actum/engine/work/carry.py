"""One work item from freeze to receipt. Only this module knows the order of the steps.

    freeze -> run under guard -> admission -> tests on a throwaway view -> commit -> receipt

It runs in a process with a mount namespace of its own (`engine.work.process`). Until the commit
is decided nothing of the workspace was touched, so "thaw" is to let go of the view. Every end is
recorded; whatever goes wrong on the way is a failure that carries its message.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.ids import new_id
from actum.contract.model import Contract, Json, RunnerKind
from actum.contract.outcome import Outcome
from actum.engine.pipeline import execute
from actum.engine.rooms import Rooms
from actum.engine.work import diff, replay
from actum.engine.work.admission import (
    RunCapsule,
    check_admission,
    make_capsule,
    run_hash,
)
from actum.engine.work.counting import count_tests
from actum.engine.work.hands import Agent, Ended, Hands
from actum.engine.work.model import Metrics, RunResult, Status, WorkItem, path_of
from actum.engine.work.process import Hear
from actum.engine.work.receipt import FILE_NAME, After, Before, folder_of, make_receipt
from actum.engine.work.records import WorkRecords, nothing_done
from actum.runners.base import Runner
from actum.store.keys import Signer
from actum.value import field, replace, value
from actum.workspace import commit
from actum.workspace.copying import CopyEngine
from actum.workspace.engine import Engine, Ground
from actum.workspace.index import Index, Scanned
from actum.workspace.merge import in_the_way
from actum.workspace.overlay import OverlayEngine
from actum.workspace.space import Space
from actum.workspace.tree import Delta, shown

_TEST_OUTPUT_BYTES = 65_536
_ROOM_FOR_TESTS = {"processes": {"max_children": 64}}
CHANGED_MEANWHILE = " was changed by another work item that ran at the same time."
_MOVED = "The workspace was changed by someone else while the work item ran."


@value
class Shop:
    """What a run works with; put together by wiring."""

    rooms: Rooms
    runners: Callable[[], Mapping[RunnerKind, Runner]]  #: fresh ones, which see today's mounts
    contract: Callable[[Mapping[str, Any]], Contract]
    space: Space  #: of the folder whose state this is about
    place: Path  #: where agents see it
    records: WorkRecords
    signer: Signer
    clock: Callable[[], datetime]
    cap_bytes: int
    engine: str = "auto"  #: or ``overlay``, or ``copy``
    test_tool: str = "TL-010"
    tell: Hear | None = None  #: told how far a run has come, and may make it wait


@value(frozen=False, kw_only=False)
class _Run:
    """What is known so far."""

    before: Before
    deadline: float
    began: float
    room: Path
    state: str = ""  #: hash of what it ran on
    looked: bool = True  #: at the disk, each time that the state had to be known
    engine: str = "none"
    delta: Delta = ()
    capsule: RunCapsule = field(default_factory=RunCapsule)
    run_hash: str = ""
    test_exit: int | None = None
    test_output: str | None = None
    counted: tuple[int, int] | None = None

    @property
    def item(self) -> WorkItem:
        return self.before.item

    def metrics(self) -> Metrics:
        passed, failed = self.counted or (None, None)
        return Metrics(
            execution_time_ms=int((time.monotonic() - self.began) * 1000),
            tool_ops_count=len(self.capsule.tool_trace),
            delta_size=self.capsule.delta_size,
            files_touched=len(self.capsule.files),
            tests_passed=passed,
            tests_failed=failed,
        )


def execute_work_item(item: WorkItem, agent: Agent, shop: Shop, run_id: str) -> RunResult:
    """Carry out one work item. A result for every outcome."""
    run = _begun(item, agent, shop, run_id)
    shop.records.open(run.before)
    try:
        with _frozen(run, shop) as engine:
            with engine.show():
                _perform(run, agent, engine, shop)
                _admit(run, shop)
                _require_outputs(run, shop)
                commit.stage(run.delta, engine, run.room)
            _test(run, engine, shop)
        _tell(run, shop, "ready")
        return _committed(run, shop)
    except Ended as end:
        return _thawed(run, shop, end.status, end.reason)
    except Exception as error:  # the contract: any error is a failure with its text
        if _decided(run, shop):
            raise  # past the commit point there is only forward; whoever comes next goes there
        return _thawed(run, shop, Status.FAILURE, str(error) or type(error).__name__)


def execute_again(item: WorkItem, agent: Agent, shop: Shop) -> str:
    """Do the work of a recorded run once more, on a folder of its own; the hash it leads to.

    Neither admitted nor recorded as a run: this is verification.
    """
    run = _begun(item, agent, shop, new_id())
    with _frozen(run, shop) as engine, engine.show():
        _perform(run, agent, engine, shop)
        commit.stage(run.delta, engine, run.room)
    return _apply(run, shop)


def execute_trial(item: WorkItem, agent: Agent, shop: Shop) -> dict[str, Json]:
    """Carry out an item on a copy of the workspace: all rules and tests, and no record of a run."""
    run = _begun(item, agent, shop, new_id())
    try:
        with _frozen(run, shop) as engine:
            with engine.show():
                _perform(run, agent, engine, shop)
                _admit(run, shop)
                _require_outputs(run, shop)
                commit.stage(run.delta, engine, run.room)
            _test(run, engine, shop)
    except Ended as end:
        shop.space.drop(run.room)
        return {"status": end.status.value, "reason": end.reason, "changes": []}
    changes: list[Json] = [
        change.document() for change in diff.changes(run.delta, shop.space.base, run.room / "new")
    ]
    _apply(run, shop)
    return {"status": Status.SUCCESS.value, "reason": None, "changes": changes}


def _apply(run: _Run, shop: Shop) -> str:
    """Bring a staged delta into a folder that is nobody's project; the hash it leads to."""
    with shop.space.held(alone=True), shop.space.index() as index:
        after = index.preview(run.delta)
        staged = commit.keep(run.delta, shop.space.base, run.room)
        shop.space.change(run.room, staged, {}, lambda _record: None)
        index.accept(after)
    return after.state.hash


def _decided(run: _Run, shop: Shop) -> bool:
    intent = commit.pending_intent(shop.space.folder)
    return intent is not None and intent["room"] == run.room.name


def _begun(item: WorkItem, agent: Agent, shop: Shop, run_id: str) -> _Run:
    began = time.monotonic()
    before = Before(
        run_id=run_id,
        item=item,
        agent_sha256=agent.sha256,
        workspace=shop.space.base,
        started_at=shop.clock(),
    )
    room = shop.space.folder / "rooms" / run_id
    return _Run(before, began + item.constraints.timeout_ms / 1000, began, room)


@contextlib.contextmanager
def _frozen(run: _Run, shop: Shop) -> Iterator[Engine]:
    """Step 1: the state before, which no other run changes while this is held."""
    space = shop.space
    while True:
        with space.held(alone=True, wait=False) as alone:
            if alone:  # else somebody runs here, who has looked already
                space.recover(shop.records.close)
        with space.held(alone=False):
            if commit.pending_intent(space.folder) is not None:
                continue  # a crash in this very moment
            scanned = _seen(run, shop)
            run.state = scanned.state.hash
            _require_inputs(run, shop)
            space.room(run.room.name)
            engine = _engine(run, shop, strangers=scanned.strangers)
            _tell(run, shop, "frozen")
            # Its own time begins here: waiting for those who start with it is not its work.
            run.deadline = time.monotonic() + run.item.constraints.timeout_ms / 1000
            try:
                yield engine
            finally:
                engine.close()
            return


def _seen(run: _Run, shop: Shop) -> Scanned:
    last = shop.records.last_success(shop.space.base)
    with shop.space.index() as index:
        scanned = shop.space.seen(index, last[0] if last else None)
    run.looked = run.looked and scanned.looked
    return scanned


def _engine(run: _Run, shop: Shop, *, strangers: int) -> Engine:
    ground = Ground(
        base=shop.space.base,
        place=shop.place,
        room=run.room,
        home=shop.space.home,
        skip=shop.space.skip,
        cap_bytes=shop.cap_bytes,
    )
    # In a user namespace the kernel cannot copy up a file whose owner has no id there.
    foreign = strangers > 0 and os.geteuid() != 0
    copying = shop.engine == "copy" or (shop.engine == "auto" and foreign)
    engine: Engine = CopyEngine(ground) if copying else OverlayEngine(ground)
    run.engine = engine.name
    return engine


def _require_inputs(run: _Run, shop: Shop) -> None:
    for name in run.item.input_files:
        if not path_of(name, shop.space.base).is_file():
            raise Ended(Status.FAILURE, f"Input file missing: {name}")


def _perform(run: _Run, agent: Agent, engine: Engine, shop: Shop) -> None:
    """Step 2: the agent, with its hands on a view of the workspace; then what it changed."""
    with _at_work(shop) as rooms:
        hands = Hands(
            run.item,
            rooms,
            shop.contract,
            deadline=run.deadline,
            trace_id=run.before.run_id,
            parent_receipt=run.before.receipt_id,
            census=engine.census,
            touched=lambda: _touched(engine, shop),
            after_call=lambda op: _tell(run, shop, "called", tool=op.tool_id, outcome=op.outcome),
        )
        try:
            agent.perform(run.item, hands)
        finally:
            run.capsule = replace(run.capsule, tool_trace=hands.trace)
        if hands.ended is not None:
            raise hands.ended
        if not hands.time_left_ms():
            raise Ended(Status.TIMEOUT, _too_late(run))
    _look(run, engine, shop)


def _tell(run: _Run, shop: Shop, at: str, **more: str) -> None:
    if shop.tell is not None:
        elapsed_ms = int((time.monotonic() - run.began) * 1000)
        shop.tell({"at": at, "item": run.item.id, "elapsed_ms": elapsed_ms, **more})


def _look(run: _Run, engine: Engine, shop: Shop) -> None:
    """What differs from the state before, exactly."""
    with shop.space.index() as index:
        if index.state is None or index.state.hash != run.state:
            raise Ended(Status.FAILURE, _MOVED)
        run.delta = engine.delta(index)
    outputs = {
        os.path.relpath(path_of(name, shop.place), shop.place) for name in run.item.output_files
    }
    run.capsule = make_capsule(run.delta, run.capsule.tool_trace, outputs)
    run.run_hash = run_hash(run.item, run.before.agent_sha256, run.state, run.capsule)


def _touched(engine: Engine, shop: Shop) -> tuple[int, int]:
    """(files, delta size) so far. Whatever is open and written meanwhile is counted as it is."""
    if engine.census().files == 0 and engine.name == "overlay":
        return 0, 0
    with shop.space.index() as index:
        capsule = make_capsule(engine.delta(index), (), ())
    return len(capsule.files), capsule.delta_size


def _admit(run: _Run, shop: Shop) -> None:
    """Step 3."""
    history = {run.run_hash} if shop.records.in_history(run.run_hash) else set()
    admission = check_admission(run.capsule, run.item.constraints, history, run.run_hash)
    if not admission.ok:
        raise Ended(Status.DENIED, admission.reason or "")


def _require_outputs(run: _Run, shop: Shop) -> None:
    for name in run.item.output_files:
        if not path_of(name, shop.place).is_file():
            raise Ended(Status.FAILURE, f"Output file missing: {name}")


def _test(run: _Run, engine: Engine, shop: Shop) -> None:
    """Step 4: on a view that is thrown away, so nothing that tests write gets in."""
    command = run.item.test_command
    if command is None:
        return
    with engine.show_for_trial(), _at_work(shop) as rooms:
        left_ms = int((run.deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise Ended(Status.TIMEOUT, _too_late(run))
        contract = shop.contract(
            {
                "tool_id": shop.test_tool,
                "inputs": {
                    "command": "sh",
                    "stdin": command + "\n",
                    "working_directory": str(shop.place),
                },
                "sandbox": {"timeout_ms": max(1_000, min(600_000, left_ms)), **_ROOM_FOR_TESTS},
                "metadata": {"purpose": f"test of work item {run.item.id}"},
            }
        )
        policy = replace(rooms.policy, time_left_ms=left_ms)
        result = execute(
            contract,
            replace(rooms, policy=policy),
            trace_id=run.before.run_id,
            parent_receipt=run.before.receipt_id,
        )
    if result.result is not None:
        output = result.result.stdout + result.result.stderr
        run.test_output = output[-_TEST_OUTPUT_BYTES:]
        run.test_exit = result.result.exit_code
        run.counted = count_tests(output)
    if result.outcome is Outcome.TIMED_OUT:
        raise Ended(Status.TIMEOUT, _too_late(run))
    if result.outcome is not Outcome.SUCCEEDED:
        if result.result is None:
            run.test_output = "; ".join(broken.message for broken in result.violations)
        raise Ended(Status.FAILURE, "Tests failed")


def _committed(run: _Run, shop: Shop) -> RunResult:
    """Step 5: the state after, its receipt, and the commit that makes both true together."""
    space, records = shop.space, shop.records
    with space.held(alone=True), space.index() as index:
        last = records.last_success(space.base)
        paths = [change.path for change in run.delta]
        scanned = space.seen(index, last[0] if last else None, paths)
        now, run.looked = scanned.state.hash, run.looked and scanned.looked
        if now != run.state:
            _require_mergeable(run, index, last is not None and last[0] == now)
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
        record = records.record(run.before, facts, result, receipt, script)
        space.change(run.room, staged, record, records.close)
        index.accept(after)
    return result


def _require_mergeable(run: _Run, index: Index, by_work_item: bool) -> None:
    """Others were committed since. What this run saw of the paths it changed must still be so."""
    if not by_work_item:
        raise Ended(Status.FAILURE, _MOVED)
    met = in_the_way(run.delta, index)
    if met is not None:
        raise Ended(Status.FAILURE, f"{shown(met)}{CHANGED_MEANWHILE}")


def _success(run: _Run, shop: Shop, state: str) -> RunResult:
    receipt_id = run.before.receipt_id
    folder = folder_of(shop.space.home, receipt_id)
    base = str(shop.space.base)
    named = {"create": [], "edit": [], "delete": []}  # type: dict[str, list[str]]
    for artifact in run.capsule.artifacts:
        named[artifact.type].append(f"{base}/{artifact.path}")
    return RunResult(
        status=Status.SUCCESS,
        receipt_id=receipt_id,
        receipt_path=str(folder / FILE_NAME),
        modified_files=tuple(named["edit"]),
        created_files=tuple(named["create"]),
        deleted_files=tuple(named["delete"]),
        output_hash=state,
        artifact_hashes={
            f"{base}/{artifact.path}": artifact.content_hash
            for artifact in run.capsule.artifacts
            if artifact.content_hash is not None
        },
        metrics=run.metrics(),
        test_output=run.test_output,
        proof_script=str(folder / replay.script_name(run.item)),
    )


def _thawed(run: _Run, shop: Shop, status: Status, reason: str) -> RunResult:
    """Nothing was committed: the view is gone, and that the state is as before is looked at."""
    space = shop.space
    space.drop(run.room)
    state = _seen(run, shop).state.hash
    run.state = run.state or state
    last = shop.records.last_success(space.base)
    if state != run.state and (last is None or last[0] != state) and reason != _MOVED:
        reason = f"{reason} ({_MOVED})"
    result = nothing_done(
        status,
        reason,
        state,
        space.home,
        receipt_id=run.before.receipt_id,
        metrics=run.metrics(),
        test_output=run.test_output,
    )
    facts = _after(run, shop, state, None)
    receipt = make_receipt(run.before, facts, result, shop.signer)
    shop.records.close(shop.records.record(run.before, facts, result, receipt, None))
    return result


def _after(run: _Run, shop: Shop, before_hash: str, previous: str | None) -> After:
    return After(
        before_hash=before_hash,
        base_hash=run.state,
        capsule=run.capsule,
        run_hash=run.run_hash,
        engine=run.engine,
        cap_bytes=shop.cap_bytes,
        looked=run.looked,
        test_exit=run.test_exit,
        previous_receipt=previous,
        ended_at=shop.clock(),
    )


@contextlib.contextmanager
def _at_work(shop: Shop) -> Iterator[Rooms]:
    """Rooms whose runners were started just now, and so see what is mounted just now."""
    runners = shop.runners()
    try:
        yield replace(shop.rooms, runners=runners)
    finally:
        for runner in runners.values():
            runner.close()


def _too_late(run: _Run) -> str:
    return f"The work item took longer than its {run.item.constraints.timeout_ms} ms."
