"""Work items of a project: starts each one in a process of its own.

`run` starts the process and waits; `here` is the other side, inside that process. They exchange
only data: the item and the folder to work on. Nothing here removes or replaces a file of the
project.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from actum import removal
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json, RunnerKind
from actum.errors import Fault, Refused
from actum.execution.services import Services
from actum.runners.base import Runner
from actum.sandbox import sweep
from actum.store.keys import PublicKey, Signer
from actum.value import field, replace, value
from actum.work import item_process
from actum.work.agents.steps import load_agent
from actum.work.held_item import HELD, Held
from actum.work.history import KeptRun
from actum.work.item_pipeline import (
    execute_again,
    execute_held,
    execute_trial,
    execute_work_item,
)
from actum.work.item_state import ItemContext
from actum.work.level import Level, LevelItem
from actum.work.model import Rehearsed, RunResult, WorkItem
from actum.work.plan_item import Planned, execute_plan
from actum.work.step_caps import StepCaps
from actum.work.tool_access import Agent
from actum.work.undo import Undoing, undo, undo_with_dependents
from actum.work.work_records import WorkRecords
from actum.work.work_recovery import Recovering, accept
from actum.workspace import commit, copies, files, level_base
from actum.workspace.space import Space

T = TypeVar("T")

#: Limit on the changes of a work item, and on the memory that they use until the commit.
CAP_BYTES = 256 << 20


class WorkInterrupted(KeyboardInterrupt):
    """Ctrl-C while a work item ran. Its process has ended, and its end is on record."""

    def __init__(self, result: RunResult | None) -> None:
        super().__init__()
        self.result = result  #: a success if it was committed before it could be stopped


class WorkLost(Fault):
    """The work item's process died, and the outcome is not known yet."""

    code = "WORK_LOST"


@value
class WorkItems:
    root: Path  #: the project, which is also the workspace
    home: Path
    services: Services
    #: New ones; their spawners are cloned from the process at the other end of the socket.
    #: Containers are shown the host folders of an `Engine`.
    runners: Callable[[socket.socket | None, Mapping[str, str]], Mapping[RunnerKind, Runner]]
    contract: Callable[[Mapping[str, Any]], Contract]
    records: WorkRecords
    signer: Signer
    trusted: Mapping[str, PublicKey]
    clock: Callable[[], datetime]
    exclusive: bool = False  #: only work items change the project
    engine: str = "auto"  #: the default for calls that name none
    containers: bool = False  #: whether tools may run in containers
    ignored: tuple[str, ...] = ()  #: patterns of paths on which the last item wins
    processes: item_process.ItemParent = field(default_factory=item_process.ItemParent)

    def close(self) -> None:
        """End the process that items are cloned from."""
        self.processes.close()

    def run(
        self,
        item: WorkItem | Mapping[str, Any] | str | bytes | Path,
        *,
        engine: str | None = None,
        hear: item_process.Hear | None = None,
        stop: item_process.Stop | None = None,
        run_id: str | None = None,
        caps: StepCaps | None = None,
    ) -> RunResult:
        """Run one work item on the project. Returns a result for every outcome.

        `hear` is called when the run has frozen its base, after each call of a tool, and when it
        is ready to commit; the run waits until it returns. A durable run gives each of its steps a
        `run_id` before it starts, and the `caps` of its contract. Raises `Refused` for an item
        whose dependencies have not succeeded here, and `WorkInterrupted` on Ctrl-C.
        """
        parsed = item if isinstance(item, WorkItem) else WorkItem.parse(item)
        result = self.run_or_hold(
            parsed, run_id or new_id(), hear=hear, stop=stop, caps=caps, engine=engine, level=None
        )
        assert result is not None  # noqa: S101 -- only an item of a level is held
        return result

    def run_level(
        self, items: Sequence[LevelItem[RunResult]], *, at_once: int, stop: item_process.Stop
    ) -> None:
        """Run items that do not depend on each other: all on the current state, at most `at_once`
        at the same time. Each is committed when those before it have ended."""
        with self._frozen(self.root, items) as level:

            def work(each: LevelItem[RunResult], hear: item_process.Hear) -> RunResult | None:
                return self.run_or_hold(
                    each.item, each.run_id, hear=hear, stop=stop, caps=each.caps, level=level
                )

            try:
                Level(items, work, partial(self._bring, stop=stop)).run(at_once, stop)
            finally:
                if stop.stopped:
                    self._let_go([each.run_id for each in items])

    def _let_go(self, run_ids: Sequence[str]) -> None:
        """Close held runs whose process was ended: they run again, if their caller goes on."""
        space = Space(self.home, self.root)
        held = [run_id for run_id in run_ids if space.is_held(run_id)]
        for run_id in held:
            space.let_go(run_id)
        if held:
            self._recovering().all(wait=True)

    @contextlib.contextmanager
    def _frozen(self, base: Path, items: Sequence[object]) -> Iterator[str | None]:
        """Freeze the state of a folder for several items; the name of the frozen state."""
        if len(items) < 2:
            yield None
            return
        self._require_readable_path()
        space = Space(self.home, base)
        with contextlib.ExitStack() as stack:
            with _settled(space, self._recovering()):
                found = stack.enter_context(level_base.frozen(space))
            yield str(found.folder.relative_to(space.run_folders))

    def run_or_hold(
        self,
        item: WorkItem,
        run_id: str,
        *,
        hear: item_process.Hear | None,
        stop: item_process.Stop | None,
        caps: StepCaps | None,
        level: str | None,
        engine: str | None = None,
    ) -> RunResult | None:
        """``None``: the item is held."""
        self.services.settings.require()
        self.agent(item.agent_id)  # an agent that does not exist is a refusal, not a failed run
        self._require_dependencies(item)
        self._require_readable_path()
        order: dict[str, Json] = {
            **self._place(),
            "do": "run",
            "run_id": run_id,
            "item": item.document(),
            "caps": None if caps is None else caps.document(),
            "engine": engine or self.engine,
            "level": level,
        }
        return self._asked(order, run_id, item, hear, stop)

    def _bring(self, each: LevelItem[RunResult], *, stop: item_process.Stop) -> RunResult:
        """Commit a held item."""
        order: dict[str, Json] = {
            **self._place(),
            "do": "bring",
            "run_id": each.run_id,
            "item": each.item.document(),
            "engine": self.engine,
        }
        result = self._asked(order, each.run_id, each.item, None, stop)
        assert result is not None  # noqa: S101 -- it is not held twice
        return result

    def _asked(
        self,
        order: Mapping[str, Json],
        run_id: str,
        item: WorkItem,
        hear: item_process.Hear | None,
        stop: item_process.Stop | None,
    ) -> RunResult | None:
        try:
            found = item_process.ask(order, hear, stop, self.processes)["result"]
            return None if found is None else RunResult.read(found)
        except item_process.Died as death:
            result = self._ended(run_id, item, killed=death.killed)
            if result is None:
                raise WorkLost(
                    f"The work item's process ended without an answer ({death}).",
                    remedy="`actum doctor` lists what this host lacks; then run it again.",
                ) from death
            return result
        except KeyboardInterrupt as interrupt:
            raise WorkInterrupted(self._ended(run_id, item, killed=True)) from interrupt

    def _ended(self, run_id: str, item: WorkItem, *, killed: bool) -> RunResult | None:
        """The outcome of a run whose process died. A decided commit is finished; any other run is
        closed as a failure."""
        recovering = self._recovering()
        recovering.all(wait=True)
        self._let_go([run_id])
        if killed and self.records.find(run_id) is None:
            agent = self.agent(item.agent_id)
            recovering.never_began(run_id, item, agent.sha256, self.root)
        kept = self.records.find(run_id)
        return None if kept is None else kept.result

    def settled(self, run_id: str, *, adopt: bool) -> RunResult | Held | None:
        """The outcome of a run whose caller has died; ``None`` if it never began, `HELD` if it was
        ready and can be committed by `run_level`. Without `adopt` such a run is closed.

        Waits for the run's own process: it dies with its caller, and a commit that it had decided
        is finished first.
        """
        space = Space(self.home, self.root)
        while True:
            self._recovering().all(wait=True)
            kept = self.records.find(run_id)
            if kept is None or kept.result is not None:
                return None if kept is None else kept.result
            if not space.is_held(run_id):
                time.sleep(0.02)
            elif adopt:
                return HELD
            else:
                space.let_go(run_id)

    def _require_readable_path(self) -> None:
        try:
            str(self.root).encode()
        except UnicodeEncodeError as error:
            raise Refused(
                "WORKSPACE_PATH_NOT_UTF8",
                f"The path of the project is not UTF-8: {str(self.root)!r}.",
                remedy="Records hold it as text. Rename the folder, or move the project.",
            ) from error

    def _require_dependencies(self, item: WorkItem) -> None:
        missing = self.records.missing(item.dependencies, self.root)
        if missing:
            raise Refused(
                "WORK_BLOCKED",
                f"{item.id} waits for {', '.join(missing)}: not committed in this project, or"
                " undone since.",
                remedy="Nothing ran. Run these items first, or all of them with `actum work`.",
            )

    def here(
        self,
        order: Mapping[str, Any],
        tell: item_process.Hear,
        source: socket.socket | None = None,
    ) -> dict[str, Json]:
        """Execute one order, in the process that was started for it. `source`: see `runners`."""
        item = WorkItem.parse(order["item"])
        agent = self.agent(item.agent_id)
        given = order.get("caps")
        caps = None if given is None else StepCaps.read(given)
        if order["do"] == "trial":
            base = Path(order["base"])
            context = self._context(base, order["engine"], order["level"], source)
            context = replace(context, rehearsal=True, tell=tell, caps=caps)
            return execute_trial(item, agent, context).document()
        if order["do"] == "again":
            context = self._context(Path(order["base"]), order["engine"], None, source)
            return {"state": execute_again(item, agent, context)}
        context = self._context(self.root, order["engine"], order.get("level"), source)
        if order["do"] == "plan":
            return execute_plan(item, agent, replace(context, tell=tell), new_id()).document()
        if order["do"] == "bring":
            return {"result": execute_held(item, context, order["run_id"]).document()}
        context = replace(context, tell=tell, caps=caps)
        result = execute_work_item(item, agent, context, order["run_id"])
        return {"result": result.document() if isinstance(result, RunResult) else None}

    def agent(self, agent_id: str) -> Agent:
        return load_agent(self.root, agent_id, self.services.registry)

    def state_hash(self, base: Path | None = None) -> str:
        """The hash of a workspace as it is on the disk."""
        if base is None or base == self.root:
            return Space(self.home, self.root).scan().state.hash
        with self._throwaway(base) as space:
            return space.scan().state.hash

    def restore(self, run_id: str, target: Path) -> str:
        """Restore the state before a run into `target`, a new or empty folder; returns its hash.

        In a throwaway home, the files that the replay script has checked out are replaced by the
        state before the run.
        """
        self._of_this_project(run_id)
        self._require_apart(target)
        space = Space(self.home, self.root)
        with space.held(alone=False), _opened(self.root) as source:
            _make_empty(target)
            with _opened(target) as there, space.staging() as stage:
                copies.copy_tree(source, there, space.skip)
                for number, later in enumerate(self.records.successes_since(run_id)):
                    steps, old = space.backward(later)
                    commit.stage_backward(steps, old, stage / str(number))
                    commit.apply(steps, there, stage / str(number))
        return self.state_hash(target)

    def again(self, run_id: str, base: Path) -> str:
        """Repeat the work of a run on `base`, a restored state; returns the resulting hash."""
        kept = self._of_this_project(run_id)
        base = base.resolve()
        self._require_apart(base)
        order: dict[str, Json] = {
            **self._place(),
            "do": "again",
            "item": kept.item.document(),
            "base": str(base),
            "engine": self.engine,
        }
        try:
            with self._throwaway(base):
                answer = item_process.ask(order, None, None, self.processes)
        except item_process.Died as death:
            raise WorkLost(
                f"The replay's process ended without an answer ({death}).", remedy="Run it again."
            ) from death
        return str(answer["state"])

    def _require_apart(self, folder: Path) -> None:
        """Require a folder neither in the project nor around it. Compares inodes too: a bind mount
        has another path."""
        folder = folder.resolve()
        if not (
            self.root.is_relative_to(folder)
            or any(_is_same(outer, self.root) for outer in (folder, *folder.parents))
            or any(_is_same(outer, folder) for outer in self.root.parents)
        ):
            return
        raise Refused(
            "REPLAY_IN_PROJECT",
            f"{folder} contains the project {self.root}, or is in it.",
            remedy="A replay changes its folder without a record. Name a folder outside of the"
            " project; `actum item restore` fills it.",
        )

    def _of_this_project(self, run_id: str) -> KeptRun:
        kept = self.find(run_id)
        if kept.workspace != self.root:
            # A home moves with its project: the recorded folder may be another project now.
            raise Refused(
                "WORK_RUN_ELSEWHERE",
                f"The run {run_id} was in {kept.workspace}, and this project is {self.root}.",
                remedy="Nothing was changed. Name a run that was committed in this folder.",
            )
        return kept

    @contextlib.contextmanager
    def _throwaway(self, base: Path) -> Iterator[Space]:
        """The space of a folder that is not the project, for one command."""
        space = Space(self.home, base, throwaway=True)
        try:
            yield space
        finally:
            space.discard()

    def find(self, run_id: str) -> KeptRun:
        kept = self.records.find(run_id)
        if kept is None:
            raise Refused(
                "WORK_RUN_UNKNOWN",
                f"No work item here has a run or a receipt {run_id[:80]!r}.",
                remedy="`actum work` and `actum item run` print the whole id of the receipt; the"
                " receipt has the run's id as `run_id`.",
            )
        return kept

    @contextlib.contextmanager
    def copied(self) -> Iterator[Path]:
        """A copy of the project for rehearsals, removed afterwards."""
        home = sweep.make_home()
        try:
            base = home.resolve() / self.root.name
            space = Space(self.home, self.root)
            with space.held(alone=False), _opened(self.root) as source:
                base.mkdir(mode=0o700)
                with _opened(base) as there:
                    copies.copy_tree(source, there, space.skip)
            with self._throwaway(base):
                yield base
        finally:
            sweep.remove_home(home)

    def rehearse(
        self,
        item: WorkItem,
        base: Path,
        *,
        hear: item_process.Hear | None = None,
        stop: item_process.Stop | None = None,
    ) -> Rehearsed:
        """Run an item on `base`, a copy, without a record."""
        return self._rehearsed(item, base, hear, stop, None, None)

    def rehearse_level(
        self,
        items: Sequence[LevelItem[Rehearsed]],
        base: Path,
        *,
        at_once: int,
        stop: item_process.Stop,
    ) -> None:
        """As `run_level`, on `base`, a copy, without a record."""
        with self._frozen(base, items) as level:

            def work(each: LevelItem[Rehearsed], hear: item_process.Hear) -> Rehearsed:
                return self._rehearsed(each.item, base, hear, stop, level, each.caps)

            Level(items, work).run(at_once, stop)

    def _rehearsed(
        self,
        item: WorkItem,
        base: Path,
        hear: item_process.Hear | None,
        stop: item_process.Stop | None,
        level: str | None,
        caps: StepCaps | None,
    ) -> Rehearsed:
        order: dict[str, Json] = {
            **self._place(),
            "do": "trial",
            "item": item.document(),
            "caps": None if caps is None else caps.document(),
            "base": str(base),
            "engine": self.engine,
            "level": level,
        }
        try:
            return Rehearsed.read(item_process.ask(order, hear, stop, self.processes))
        except item_process.Died as death:
            raise WorkLost(
                f"The rehearsal's process ended without an answer ({death}).",
                remedy="Run it again; the project was not touched.",
            ) from death

    def plan(
        self,
        item: WorkItem,
        *,
        hear: item_process.Hear | None = None,
        stop: item_process.Stop | None = None,
    ) -> Planned:
        """Let an agent plan; nothing that it writes is committed. Raises `WorkLost` if its process
        ended without an answer."""
        order: dict[str, Json] = {
            **self._place(),
            "do": "plan",
            "item": item.document(),
            "engine": self.engine,
        }
        try:
            return Planned.read(item_process.ask(order, hear, stop, self.processes))
        except item_process.Died as death:
            self._recovering().all(wait=True)  # drops its view
            raise WorkLost(
                f"The planner's process ended without an answer ({death}).",
                remedy="Run it again; the project was not touched.",
            ) from death

    def undo(self, name: str) -> RunResult:
        """Undo the run with this receipt id or run id. Refuses if later work rests on it."""
        return self._undoing(name, undo)

    def undo_with_dependents(self, name: str) -> tuple[tuple[KeptRun, RunResult], ...]:
        """The same with all later work that rests on it, the newest first."""
        return self._undoing(name, undo_with_dependents)

    def _undoing(self, name: str, do: Callable[[KeptRun, Undoing], T]) -> T:
        kept = self._of_this_project(self.records.of_receipt(name) or name)
        tools = Undoing(
            space=Space(self.home, self.root),
            records=self.records,
            signer=self.signer,
            trusted=self.trusted,
            clock=self.clock,
            recovering=self._recovering(),
        )
        try:
            return do(kept, tools)
        except KeyboardInterrupt:
            self.recover()  # past its commit point it is finished now, not by the next command
            raise

    def accept(self, name: str) -> RunResult:
        """Record that a person accepts the project as it is, after a run that left it damaged."""
        kept = self.find(self.records.of_receipt(name) or name)
        return accept(kept, self._recovering())

    def recover(self) -> None:
        """Finish what dead processes left."""
        if (self.home / "work").is_dir():
            self._recovering().all()

    def _recovering(self) -> Recovering:
        return Recovering(
            home=self.home, records=self.records, signer=self.signer, clock=self.clock
        )

    def _place(self) -> dict[str, Json]:
        return {"root": str(self.root), "home": str(self.home)}

    def _context(
        self, base: Path, engine: str, level: str | None, source: socket.socket | None
    ) -> ItemContext:
        space = Space(self.home, base, exclusive=self.exclusive and base == self.root)
        return ItemContext(
            services=self.services,
            runners=partial(self.runners, source),
            contract=self.contract,
            space=space,
            place=self.root,
            level=None if level is None else level_base.LevelBase(space.run_folders / level),
            records=self.records,
            signer=self.signer,
            clock=self.clock,
            cap_bytes=CAP_BYTES,
            engine=engine,
            containers=self.containers,
            ignored=self.ignored,
        )


@contextlib.contextmanager
def _settled(space: Space, recovering: Recovering) -> Iterator[None]:
    """Hold a workspace, shared, in which no commit is unfinished."""
    while True:
        with space.held(alone=True, wait=False) as alone:
            if alone:  # else another process runs here, and has already recovered
                recovering.space(space)
        with space.held(alone=False):
            if commit.pending_intent(space.folder) is None:
                yield
                return


@contextlib.contextmanager
def _opened(folder: Path) -> Any:
    descriptor = os.open(folder, files.FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False  # it does not exist yet, or this user may not read it


def _make_empty(target: Path) -> None:
    """Make or require an empty folder. Only inside a throwaway home is a full one emptied."""
    if target.is_dir() and os.listdir(target):
        if not sweep.is_home(target.parent):
            raise Refused(
                "RESTORE_NOT_EMPTY",
                f"{target} is not empty.",
                remedy="Nothing was changed. Name a new or an empty folder.",
            )
        removal.remove_part(target.parent, target.name)
        target.mkdir(mode=0o700)
    else:
        target.mkdir(mode=0o700, exist_ok=True)
