"""Work items of a project: starts each one in a process of its own.

`run` starts the process and waits; `here` is the other side, inside that process. They exchange
only data: the item and the folder to work on. Nothing here removes or replaces a file of the
project.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum import removal
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json, RunnerKind
from actum.errors import Fault, Refused
from actum.execution.services import Services
from actum.runners.base import Runner
from actum.sandbox import sweep
from actum.store.keys import PublicKey, Signer
from actum.value import replace, value
from actum.work import item_process
from actum.work.agents.steps import load_agent
from actum.work.history import KeptRun
from actum.work.item_pipeline import execute_again, execute_trial, execute_work_item
from actum.work.item_state import ItemContext
from actum.work.model import Rehearsed, RunResult, WorkItem
from actum.work.step_caps import StepCaps
from actum.work.tool_access import Agent
from actum.work.undo import Undoing, undo
from actum.work.work_records import WorkRecords
from actum.work.work_recovery import Recovering, accept
from actum.workspace import commit, copies, files
from actum.workspace.space import Space

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
    runners: Callable[[], Mapping[RunnerKind, Runner]]
    contract: Callable[[Mapping[str, Any]], Contract]
    records: WorkRecords
    signer: Signer
    trusted: Mapping[str, PublicKey]
    clock: Callable[[], datetime]
    exclusive: bool = False  #: only work items change the project
    engine: str = "auto"  #: the default for calls that name none

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
        self.services.settings.require()
        self.agent(parsed.agent_id)  # an agent that does not exist is a refusal, not a failed run
        self._require_dependencies(parsed)
        self._require_readable_path()
        run_id = run_id or new_id()
        order: dict[str, Json] = {
            **self._place(),
            "do": "run",
            "run_id": run_id,
            "item": parsed.document(),
            "caps": None if caps is None else caps.document(),
            "engine": engine or self.engine,
            "asked_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        }
        try:
            return RunResult.read(item_process.ask(order, hear, stop)["result"])
        except item_process.Died as death:
            result = self._ended(run_id, parsed, killed=death.killed)
            if result is None:
                raise WorkLost(
                    f"The work item's process ended without an answer ({death}).",
                    remedy="`actum doctor` lists what this host lacks; then run it again.",
                ) from death
            return result
        except KeyboardInterrupt as interrupt:
            raise WorkInterrupted(self._ended(run_id, parsed, killed=True)) from interrupt

    def _ended(self, run_id: str, item: WorkItem, *, killed: bool) -> RunResult | None:
        """The outcome of a run whose process died. A decided commit is finished; any other run is
        closed as a failure."""
        recovering = self._recovering()
        recovering.all(wait=True)
        if killed and self.records.find(run_id) is None:
            agent = self.agent(item.agent_id)
            recovering.never_began(run_id, item, agent.sha256, self.root)
        kept = self.records.find(run_id)
        return None if kept is None else kept.result

    def settled(self, run_id: str) -> RunResult | None:
        """The outcome of a run whose caller has died; ``None`` if it never began.

        Waits for the run's own process: it dies with its caller, and a commit that it had decided
        is finished first.
        """
        while True:
            self._recovering().all(wait=True)
            kept = self.records.find(run_id)
            if kept is None or kept.result is not None:
                return None if kept is None else kept.result
            time.sleep(0.02)

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

    def here(self, order: Mapping[str, Any], tell: item_process.Hear) -> dict[str, Json]:
        """Execute one order, in the process that was started for it."""
        item = WorkItem.parse(order["item"])
        agent = self.agent(item.agent_id)
        if order["do"] == "trial":
            context = self._context(Path(order["base"]), order["engine"])
            context = replace(context, rehearsal=True, tell=tell)
            return execute_trial(item, agent, context).document()
        if order["do"] == "again":
            base = Path(order["base"])
            return {"state": execute_again(item, agent, self._context(base, order["engine"]))}
        context = self._context(self.root, order["engine"])
        caps = None if order["caps"] is None else StepCaps.read(order["caps"])
        context = replace(context, tell=tell, asked_ns=order["asked_ns"], caps=caps)
        return {"result": execute_work_item(item, agent, context, order["run_id"]).document()}

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
                answer = item_process.ask(order)
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
        order: dict[str, Json] = {
            **self._place(),
            "do": "trial",
            "item": item.document(),
            "base": str(base),
            "engine": self.engine,
        }
        try:
            return Rehearsed.read(item_process.ask(order, hear, stop))
        except item_process.Died as death:
            raise WorkLost(
                f"The rehearsal's process ended without an answer ({death}).",
                remedy="Run it again; the project was not touched.",
            ) from death

    def undo(self, name: str) -> RunResult:
        """Undo the run with this receipt id or run id."""
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
            return undo(kept, tools)
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

    def _context(self, base: Path, engine: str) -> ItemContext:
        return ItemContext(
            services=self.services,
            runners=self.runners,
            contract=self.contract,
            space=Space(self.home, base, exclusive=self.exclusive and base == self.root),
            place=self.root,
            records=self.records,
            signer=self.signer,
            clock=self.clock,
            cap_bytes=CAP_BYTES,
            engine=engine,
        )


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
