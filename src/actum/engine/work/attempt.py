"""The work itself: from the frozen state to changes that are staged, let in and tested.

Nothing of the workspace is touched here. A run that cannot go on ends with `Ended`, and its caller
drops the view.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from actum import kernel
from actum.contract.outcome import Outcome
from actum.engine.governed import exists_on_host, governed
from actum.engine.pipeline import execute
from actum.engine.work.admission import check_admission, make_capsule, run_hash
from actum.engine.work.counting import count_tests
from actum.engine.work.hands import Agent, Ended, Hands
from actum.engine.work.model import Status, path_of
from actum.engine.work.run import Run, Shop, at_work, seen, tell
from actum.errors import Refused
from actum.value import replace
from actum.workspace import commit, files
from actum.workspace.copying import CopyEngine
from actum.workspace.engine import Engine, Ground
from actum.workspace.index import Index, Scanned
from actum.workspace.merge import in_the_way
from actum.workspace.overlay import OverlayEngine, OverlayUnsupported
from actum.workspace.tree import shown

_TEST_OUTPUT_BYTES = 65_536
_ROOM_FOR_TESTS = {"processes": {"max_children": 64}}
_MOST_NAMED = 5
_BESIDE = "another work item that ran at the same time"
MOVED = "The workspace was changed by someone else while the work item ran."


def is_conflict(reason: str | None) -> bool:
    """Whether a run failed for what another has done meanwhile: done again, it may succeed."""
    return reason is not None and _BESIDE in reason


def work(run: Run, agent: Agent, shop: Shop, *, judged: bool = True, record: bool = False) -> None:
    """Steps 1 to 4. Not `judged`: neither rules nor tests are asked. `record`: as a run, opened
    with the frozen state's hash before anything starts."""
    with _frozen(run, shop, record=record) as engine:
        with engine.show():
            _perform(run, agent, engine, shop)
            if judged:
                _admit(run, shop)
                _require_outputs(run, shop)
            commit.stage(run.delta, engine, run.room)
        if judged:
            # Not before the view is gone: the host is looked at without the changes.
            require_nothing_governs(run, shop)
            _test(run, engine, shop)
    run.tested_on = run.state


def retest(run: Run, shop: Shop) -> None:
    """Others were committed since its tests, which have to pass on exactly what is committed: so
    they see its changes on what there is now."""
    with _held_still(run, shop) as scanned:
        run.go_on()
        with shop.space.index() as index:
            require_mergeable(run, index, shop, scanned.state.hash)
        engine = _engine(run, shop, strangers=scanned.strangers)
        try:
            with engine.show():
                commit.show_staged(run.delta, engine, run.room)
            _test(run, engine, shop)
        except Ended as end:
            if end.status is Status.FAILURE:
                raise Ended(end.status, f"{end.reason} on top of the work of {_BESIDE}.") from end
            raise
        finally:
            engine.close()
    run.tested_on = scanned.state.hash
    run.wait()


def require_mergeable(run: Run, index: Index, shop: Shop, now: str) -> None:
    """Others were committed since. What this run saw of the paths it changed must still be so."""
    last = shop.records.last_success(shop.space.base)
    if not shop.rehearsal and (last is None or last[0] != now):
        raise Ended(Status.FAILURE, MOVED)
    met = in_the_way(run.delta, index)
    if met is not None:
        raise Ended(Status.FAILURE, f"{shown(met)} was changed by {_BESIDE}.")


@contextlib.contextmanager
def _held_still(run: Run, shop: Shop, since_ns: int | None = None) -> Iterator[Scanned]:
    """The state as it is now, which no other run changes while this is held."""
    space = shop.space
    while True:
        with space.held(alone=True, wait=False) as alone:
            if alone:  # else another process runs here, and has recovered already
                shop.recover(space)
        with space.held(alone=False):
            if commit.pending_intent(space.folder) is not None:
                continue  # a crash in this very moment
            yield seen(run, shop, since_ns)
            return


@contextlib.contextmanager
def _frozen(run: Run, shop: Shop, *, record: bool) -> Iterator[Engine]:
    """Step 1: the state before. Of items that are asked for together, the first looks for all:
    what is changed between its look and theirs is found before the commit."""
    with _held_still(run, shop, shop.asked_ns) as scanned, contextlib.ExitStack() as undo:
        run.state = scanned.state.hash
        if record:
            # On the disk before anything starts: recovery compares with it.
            shop.records.open(run.before, run.state)
            run.recorded = True
        _require_inputs(run, shop)
        shop.space.room(run.room.name)
        engine = _engine(run, shop, strangers=scanned.strangers)
        undo.callback(engine.close)
        tell(run, shop, "frozen")
        # Its own time begins here: waiting for those who start with it is not its work.
        run.deadline = time.monotonic() + run.item.constraints.timeout_ms / 1000
        yield engine


def _engine(run: Run, shop: Shop, *, strangers: int) -> Engine:
    ground = Ground(
        base=shop.space.base,
        place=shop.place,
        mounts=shop.space.mounts,
        home=shop.space.home,
        skip=shop.space.skip,
        cap_bytes=shop.cap_bytes,
    )
    # In a user namespace the kernel cannot copy up a file whose owner has no id there.
    foreign = strangers > 0 and os.geteuid() != 0
    engine: Engine
    if shop.engine == "copy" or (shop.engine == "auto" and foreign):
        engine = CopyEngine(ground)
    else:
        try:
            engine = OverlayEngine(ground)
        except OverlayUnsupported:
            if shop.engine == "overlay":
                raise
            engine = CopyEngine(ground)
    run.engine = engine.name
    return engine


def _require_inputs(run: Run, shop: Shop) -> None:
    for name in run.item.input_files:
        # A link may lead to another file of the project, and to nothing outside of it.
        if not _is_file(name, shop.space.base, kernel.RESOLVE_BENEATH):
            raise Ended(Status.FAILURE, f"Input file missing: {name}")


def _is_file(name: str, base: Path, resolve: int) -> bool:
    """Whether a name of the work item is a regular file below `base`."""
    path = os.path.relpath(path_of(name, base), base)
    folder = os.open(base, files.FOLDER_FLAGS)
    try:
        descriptor = kernel.openat2(folder, path, os.O_PATH, resolve)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES):
            return False
        raise
    finally:
        os.close(folder)
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _perform(run: Run, agent: Agent, engine: Engine, shop: Shop) -> None:
    """Step 2: the agent, with its hands on a view of the workspace; then what it changed."""
    with at_work(shop) as rooms:
        hands = Hands(
            run.item,
            rooms,
            shop.contract,
            deadline=run.deadline,
            trace_id=run.before.run_id,
            parent_receipt=run.before.receipt_id,
            census=engine.census,
            touched=lambda: _touched(engine, shop),
            after_call=lambda op: tell(run, shop, "called", tool=op.tool_id, outcome=op.outcome),
        )
        ended = _performed(run, agent, hands)
    if ended is not None:
        # The metrics count what it had changed until then. More than can be read is not counted.
        with contextlib.suppress(Ended, Refused, OSError):
            _look(run, engine, shop)
        raise ended
    _look(run, engine, shop)


def _performed(run: Run, agent: Agent, hands: Hands) -> Ended | None:
    """Let the agent work; why the run ended before the agent was done, if it did."""
    try:
        agent.perform(run.item, hands)
    except Ended as end:
        return end
    finally:
        run.capsule = replace(run.capsule, tool_trace=hands.trace)
    if hands.ended is None and not hands.time_left_ms():
        return Ended(Status.TIMEOUT, run.too_late())
    return hands.ended


def _look(run: Run, engine: Engine, shop: Shop) -> None:
    """What differs from the state before, exactly."""
    with shop.space.index() as index:
        if index.state is None or index.state.hash != run.state:
            raise Ended(Status.FAILURE, MOVED)
        run.delta = engine.delta(index)
    outputs = {
        os.path.relpath(path_of(name, shop.place), shop.place) for name in run.item.output_files
    }
    run.capsule = make_capsule(run.delta, run.capsule.tool_trace, outputs)
    run.run_hash = run_hash(run.item, run.before.agent_sha256, run.state, run.capsule)


def _touched(engine: Engine, shop: Shop) -> tuple[int, int]:
    """(files, delta size) so far. Whatever is open and written meanwhile is counted as it is."""
    census = engine.census()
    if engine.name == "overlay" and census.files == census.folders == 0:
        return 0, 0
    with shop.space.index() as index:
        capsule = make_capsule(engine.delta(index), (), ())
    return len(capsule.files), capsule.delta_size


def _admit(run: Run, shop: Shop) -> None:
    """Step 3."""
    history = {run.run_hash} if shop.records.in_history(run.run_hash) else set()
    admission = check_admission(run.capsule, run.item.constraints, history, run.run_hash)
    if not admission.ok:
        raise Ended(Status.DENIED, admission.reason or "")
    closed = [
        shown(change.path) or "."
        for change in run.delta
        if change.after is not None and files.is_closed(change.after.type_and_mode)
    ]
    if closed:
        # Its process has privileges in its user namespace. Neither an undo nor people have them.
        raise Ended(Status.DENIED, f"Closed to the owner of the project: {', '.join(closed[:5])}")


def require_nothing_governs(run: Run, shop: Shop) -> None:
    """Also of step 3, and again at the commit: two runs side by side can each make one half of a
    repository, and git's configuration may name other files by then. A work item is all or nothing,
    so it cannot be held for an approval as an execution is."""
    settlement, place = shop.rooms.settlement, str(shop.place)

    def exists(path: bytes) -> bool | None:
        found = exists_on_host(path)
        top = os.fsencode(place) + b"/"
        if found is not False or not shop.rehearsal or not path.startswith(top):
            return found
        # A rehearsal's project is a copy, with the changes of the rehearsals before it.
        return exists_on_host(os.path.join(os.fsencode(shop.space.base), path[len(top) :]))

    found = governed([(place, run.delta)], settlement.root, settlement.protected_names, exists)
    if found:
        paths = [shown(path) or "." for _folder, path in found]
        more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
        raise Ended(
            Status.DENIED,
            f"Governing names changed: {', '.join(paths[:_MOST_NAMED])}{more}. They decide what is"
            " executed later. Make this change yourself, or run the tool with `actum exec` and"
            " approve the held change.",
        )


def _require_outputs(run: Run, shop: Shop) -> None:
    for name in run.item.output_files:
        # Through no link: the file itself is the output, and is in the project.
        if not _is_file(name, shop.place, kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS):
            link = os.path.islink(path_of(name, shop.place))
            why = "is a link, not a file" if link else "missing"
            raise Ended(Status.FAILURE, f"Output file {why}: {name}")


def _test(run: Run, engine: Engine, shop: Shop) -> None:
    """Step 4: on a view that is thrown away, so nothing that tests write gets in."""
    run.test_exit, run.test_output, run.counted = None, None, None
    command = run.item.test_command
    if command is None:
        return
    with engine.show_for_trial(), at_work(shop) as rooms:
        left_ms = int((run.deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise Ended(Status.TIMEOUT, run.too_late())
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
        raise Ended(Status.TIMEOUT, run.too_late())
    if result.outcome is not Outcome.SUCCEEDED:
        if result.result is None:
            run.test_output = "; ".join(broken.message for broken in result.violations)
        raise Ended(Status.FAILURE, "Tests failed")
