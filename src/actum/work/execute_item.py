"""Executes an item: from the frozen state to changes that are staged, admitted and tested.

Nothing here writes to the workspace. A run that cannot continue raises `Ended`, and its caller
discards the view.
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
from actum.capture.model import DiffSummary
from actum.contract.canonical import sha256_json
from actum.contract.levels import is_within
from actum.contract.outcome import Outcome
from actum.errors import Refused
from actum.execution.execution import WorkStep
from actum.execution.pipeline import execute
from actum.execution.transactions import last_wins_at, summary_of
from actum.value import replace
from actum.work.admission import check_admission, entry_text, make_capsule, run_hash
from actum.work.counting import count_tests
from actum.work.item_state import ItemContext, Run, at_work, declared_outputs, seen, tell
from actum.work.model import Status, path_of
from actum.work.step_caps import broken_cap, is_env_file
from actum.work.tool_access import Agent, Ended, ToolAccess
from actum.workspace import commit, files
from actum.workspace.copying import CopyEngine
from actum.workspace.engine import Engine, Ground
from actum.workspace.governing_changes import exists_on_host, governed
from actum.workspace.index import Index, Scanned
from actum.workspace.merge import in_the_way, on_top
from actum.workspace.overlay import OverlayEngine, OverlayUnsupported
from actum.workspace.tree import Delta, shown

_TEST_OUTPUT_BYTES = 65_536
_ROOM_FOR_TESTS = {"processes": {"max_children": 64}}
_MOST_NAMED = 5
_MOST_LINKS = 40  #: of one chain, as for the kernel
_BESIDE = "another work item that ran at the same time"
MOVED = "The workspace was changed by someone else while the work item ran."


def is_conflict(reason: str | None) -> bool:
    """Whether a run failed because of another run's changes: a retry may succeed."""
    return reason is not None and _BESIDE in reason


def work(
    run: Run, agent: Agent, context: ItemContext, *, judged: bool = True, record: bool = False
) -> None:
    """Steps 1 to 4. Not `judged`: without rules and tests. `record`: open a run in the records,
    with the frozen state's hash, before anything starts."""
    with _frozen(run, context, record=record) as engine:
        with engine.show():
            _perform(run, agent, engine, context)
            if judged:
                _admit(run, context)
                _require_outputs(run, context)
            commit.stage(run.delta, engine, run.room)
        if judged:
            _require_caps(run, context)
            if run.item.test_command is not None:  # else nothing is between it and the commit's
                # Not before the view is unmounted: the host is checked without the changes.
                require_nothing_governs(run, context, context.frozen)
            _test(run, engine, context)
    run.tested_on = run.state


def retest(run: Run, context: ItemContext) -> None:
    """Test again on the current state: other runs were committed since its tests, which have to
    pass on exactly the state that is committed."""
    with _held_still(run, context) as scanned:
        run.go_on()
        with context.space.index() as index:
            require_mergeable(run, index, context, scanned.state.hash)
        engine = _engine(run, context, context.space.base, strangers=scanned.strangers)
        try:
            with engine.show():
                commit.show_staged(run.delta, engine, run.room)
            _test(run, engine, context)
        except Ended as end:
            if end.status is Status.FAILURE:
                raise Ended(end.status, f"{end.reason} on top of the work of {_BESIDE}.") from end
            raise
        finally:
            engine.close()
    run.tested_on = scanned.state.hash
    run.wait()


def require_mergeable(run: Run, index: Index, context: ItemContext, now: str) -> None:
    """Other runs were committed since. The paths that this run changed must still be as it saw
    them."""
    last = context.records.last_success(context.space.base)
    if not context.rehearsal and (last is None or last[0] != now):
        raise Ended(Status.FAILURE, MOVED)
    base = os.fsencode(context.space.base)

    def is_ignored(path: bytes) -> bool:
        return last_wins_at(base, path, base, context.ignored)

    met = in_the_way(run.delta, index, is_ignored)
    if met is not None:
        raise Ended(Status.FAILURE, f"{shown(met)} was changed by {_BESIDE}.")
    run.delta = on_top(run.delta, index)
    # The receipt names what is replaced now. The run's hash stays that of its work from its base.
    outputs = declared_outputs(run.item, context)
    run.capsule = make_capsule(run.delta, run.capsule.tool_trace, outputs)


@contextlib.contextmanager
def _held_still(run: Run, context: ItemContext) -> Iterator[Scanned]:
    """The current state, which no other run changes while this is held."""
    space = context.space
    while True:
        with space.held(alone=True, wait=False) as alone:
            if alone:  # else another process runs here, and has already recovered
                context.recover(space)
        with space.held(alone=False):
            if commit.pending_intent(space.folder) is not None:
                continue  # a crash happened just now
            yield seen(run, context)
            return


@contextlib.contextmanager
def _frozen(run: Run, context: ItemContext, *, record: bool) -> Iterator[Engine]:
    """Step 1: the state before. The items of a level have one, which was frozen for all of them."""
    with contextlib.ExitStack() as undo:
        if context.level is None:
            scanned = undo.enter_context(_held_still(run, context))
        else:
            scanned = context.level.scanned()
        run.state = scanned.state.hash
        if record:
            # On the disk before anything starts: recovery compares with it.
            context.records.open(run.before, run.state)
            run.recorded = True
        _require_inputs(run, context)
        context.space.run_folder(run.room.name)
        engine = _engine(run, context, context.frozen, strangers=scanned.strangers)
        undo.callback(engine.close)
        tell(run, context, "frozen")
        # Its own time begins here: waiting for the others of its level does not count.
        run.deadline = time.monotonic() + run.item.constraints.timeout_ms / 1000
        yield engine


def _engine(run: Run, context: ItemContext, base: Path, *, strangers: int) -> Engine:
    # An ordinary user's item is in a user namespace, in which no engine's user can be known.
    contained = context.containers and os.geteuid() == 0
    ground = Ground(
        base=base,
        place=context.place,
        mounts=context.space.mounts,
        home=context.space.home,
        skip=context.space.skip,
        cap_bytes=context.cap_bytes,
        on_host=run.room / "view" if contained else None,
    )
    # In a user namespace the kernel cannot copy up a file whose owner is not mapped there.
    foreign = strangers > 0 and os.geteuid() != 0
    engine: Engine
    if context.engine == "copy" or (context.engine == "auto" and (foreign or contained)):
        engine = CopyEngine(ground)
    else:
        try:
            engine = OverlayEngine(ground)
        except OverlayUnsupported:
            if context.engine == "overlay":
                raise
            engine = CopyEngine(ground)
    run.engine = engine.name
    return engine


def _require_inputs(run: Run, context: ItemContext) -> None:
    for name in run.item.input_files:
        # A link may lead to another file of the project, but not outside of it.
        if not _is_file(name, context.frozen, kernel.RESOLVE_BENEATH):
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


def _perform(run: Run, agent: Agent, engine: Engine, context: ItemContext) -> None:
    """Step 2: the agent, with tool access to a view of the workspace; then its changes."""
    with at_work(context, engine) as services:
        tool_access = ToolAccess(
            run.item,
            services,
            context.contract,
            deadline=run.deadline,
            trace_id=run.before.run_id,
            parent_receipt=run.before.receipt_id,
            census=engine.census,
            touched=lambda: _touched(engine, context),
            diff=lambda: _diff_so_far(engine, context),
            before_call=lambda tool: tell(run, context, "calling", tool=tool),
            after_call=lambda op: tell(run, context, "called", tool=op.tool_id, outcome=op.outcome),
        )
        ended = _performed(run, agent, tool_access)
    if ended is not None:
        # The metrics count its changes until then. What cannot be read is not counted.
        with contextlib.suppress(Ended, Refused, OSError):
            _look(run, engine, context)
        raise ended
    _look(run, engine, context)


def _performed(run: Run, agent: Agent, tool_access: ToolAccess) -> Ended | None:
    """Run the agent; the reason if the run ended before the agent was done."""
    try:
        agent.perform(run.item, tool_access)
    except Ended as end:
        return end
    finally:
        run.capsule = replace(run.capsule, tool_trace=tool_access.trace)
    if tool_access.ended is None and not tool_access.time_left_ms():
        return Ended(Status.TIMEOUT, run.too_late())
    return tool_access.ended


def _look(run: Run, engine: Engine, context: ItemContext) -> None:
    """Compute the exact difference from the state before."""
    with context.index() as index:
        if index.state is None or index.state.hash != run.state:
            raise Ended(Status.FAILURE, MOVED)
        run.delta = engine.delta(index)
    outputs = declared_outputs(run.item, context)
    run.capsule = make_capsule(run.delta, run.capsule.tool_trace, outputs)
    run.run_hash = run_hash(run.item, run.before.agent_sha256, run.state, run.capsule)


def _touched(engine: Engine, context: ItemContext) -> tuple[int, int]:
    """(files, delta size) so far. Files that are being written are counted as they are."""
    census = engine.census()
    if engine.name == "overlay" and census.files == census.folders == 0:
        return 0, 0
    with context.index() as index:
        capsule = make_capsule(engine.delta(index), (), ())
    return len(capsule.files), capsule.delta_size


def _diff_so_far(engine: Engine, context: ItemContext) -> DiffSummary | None:
    """Files that are being written are described as they are; what cannot be read, not at all."""
    try:
        with context.index() as index:
            return _summary(engine.delta(index), context)
    except (Refused, OSError):
        return None


def _summary(delta: Delta, context: ItemContext) -> DiffSummary | None:
    paths = [(os.path.join(context.place, shown(change.path)), change) for change in delta]
    listed = [[path, change.action.value, entry_text(change.after)] for path, change in paths]
    return summary_of(paths, "direct", sha256_json(listed))


def _admit(run: Run, context: ItemContext) -> None:
    """Step 3."""
    history = {run.run_hash} if context.records.in_history(run.run_hash) else set()
    admission = check_admission(run.capsule, run.item.constraints, history, run.run_hash)
    if not admission.ok:
        raise Ended(Status.DENIED, admission.reason or "")
    closed = [
        shown(change.path) or "."
        for change in run.delta
        if change.after is not None and files.is_closed(change.after.type_and_mode)
    ]
    if closed:
        # The item's process has privileges in its user namespace; an undo and people do not.
        raise Ended(Status.DENIED, f"Closed to the owner of the project: {', '.join(closed[:5])}")


def _require_caps(run: Run, context: ItemContext) -> None:
    """Part of step 3, for an item that is a step of a run; the changes are staged."""
    if context.caps is None:
        return
    targets = _env_targets(context)
    broken = broken_cap(context.caps, run.delta, context.frozen, run.room / "new", targets)
    if broken is not None:
        raise Ended(Status.DENIED, broken)


def _env_targets(context: ItemContext) -> set[str]:
    """What links named `.env` lead to, in the state that the item began with: a tool that writes to
    such a link changes that file. And the links on the way: another target of one of them makes
    another file the environment file."""
    with context.index() as index:
        links = [shown(path) for path in index.links(b".env") if is_env_file(shown(path))]
    return {path for link in links for path in _followed(link, context)}


def _followed(path: str, context: ItemContext) -> Iterator[str]:
    """The links of the project that a path leads through, and the name in it that they lead to.
    Step by step: a link can lead through folders that are links too."""
    place = at = str(context.place)
    waiting, links = path.split("/")[::-1], 0
    while waiting:
        step = waiting.pop()
        at = os.path.normpath(os.path.join(at, step))
        # The links of the project are those of the frozen state; others are the host's.
        is_ours = is_within(at, place)
        found = os.path.join(context.frozen, os.path.relpath(at, place)) if is_ours else at
        if step in ("", ".", "..") or not os.path.islink(found):
            continue
        if is_ours:
            yield os.path.relpath(at, place)
        links += 1
        if links > _MOST_LINKS:
            return
        # An absolute one names the project by its own path.
        target = os.readlink(found)
        at = "/" if target.startswith("/") else os.path.dirname(at)
        waiting += target.split("/")[::-1]
    if is_within(at, place):
        yield os.path.relpath(at, place)


def require_nothing_governs(run: Run, context: ItemContext, project: Path) -> None:
    """`project` is the folder with the state of the project that the changes apply to.

    Part of step 3, and repeated at the commit: two parallel runs can each make one half of a
    repository, and git's configuration may name other files by then. A work item is all or nothing,
    so unlike an execution it cannot be held for an approval."""
    settlement, place = context.services.settlement, str(context.place)

    def exists(path: bytes) -> bool | None:
        found = exists_on_host(path)
        top = os.fsencode(place) + b"/"
        elsewhere = project != context.place and path.startswith(top)
        # The project of a rehearsal is a copy without git's own records.
        if found is None or not elsewhere or (found and context.rehearsal):
            return found
        return exists_on_host(os.path.join(os.fsencode(project), path[len(top) :]))

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


def _require_outputs(run: Run, context: ItemContext) -> None:
    for name in run.item.output_files:
        # Links are not followed: the output is the file itself, in the project.
        if not _is_file(name, context.place, kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS):
            link = os.path.islink(path_of(name, context.place))
            why = "is a link, not a file" if link else "missing"
            raise Ended(Status.FAILURE, f"Output file {why}: {name}")


def _test(run: Run, engine: Engine, context: ItemContext) -> None:
    """Step 4: on a view that is discarded, so nothing that tests write is committed."""
    run.test_exit, run.test_output, run.counted = None, None, None
    command = run.item.test_command
    if command is None:
        return
    with engine.show_for_trial(), at_work(context, engine) as services:
        left_ms = int((run.deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise Ended(Status.TIMEOUT, run.too_late())
        contract = context.contract(
            {
                "tool_id": context.test_tool,
                "inputs": {
                    "command": "sh",
                    "stdin": command + "\n",
                    "working_directory": str(context.place),
                },
                "sandbox": {"timeout_ms": max(1_000, min(600_000, left_ms)), **_ROOM_FOR_TESTS},
                "metadata": {"purpose": f"test of work item {run.item.id}"},
            }
        )
        policy = replace(services.policy, time_left_ms=left_ms)
        result = execute(
            contract,
            replace(services, policy=policy),
            trace_id=run.before.run_id,
            parent_receipt=run.before.receipt_id,
            work=WorkStep(diff=lambda: _summary(run.delta, context), count_tests=count_tests),
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
