"""Where work items are asked for: each is carried out in a process of its own.

`run` asks and waits; `here` is the other side, inside that process. Between them travels data
only: the item and where to work. Nothing here removes or replaces a file of the project.
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
from actum.agents.steps import load_agent
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json, RunnerKind
from actum.engine.rooms import Rooms
from actum.engine.work import process
from actum.engine.work.carry import execute_again, execute_trial, execute_work_item
from actum.engine.work.hands import Agent
from actum.engine.work.history import KeptRun
from actum.engine.work.model import Rehearsed, RunResult, WorkItem
from actum.engine.work.records import WorkRecords
from actum.engine.work.recover import Recovering, accept
from actum.engine.work.run import Shop
from actum.engine.work.undo import Undoing, undo
from actum.errors import Fault, Refused
from actum.runners.base import Runner
from actum.sandbox import sweep
from actum.store.keys import PublicKey, Signer
from actum.value import replace, value
from actum.workspace import commit, copies, files
from actum.workspace.space import Space

#: Largest amount of changes that a work item can have, and of memory that they take meanwhile.
CAP_BYTES = 256 << 20


class WorkInterrupted(KeyboardInterrupt):
    """Ctrl-C while a work item ran. Its process is gone, and its end is on record."""

    def __init__(self, result: RunResult | None) -> None:
        super().__init__()
        self.result = result  #: a success if it was committed before it could be stopped


class WorkLost(Fault):
    """The work item's process died, and what became of it cannot be said yet."""

    code = "WORK_LOST"


@value
class Workshop:
    root: Path  #: the project, which is also the workspace
    home: Path
    rooms: Rooms
    runners: Callable[[], Mapping[RunnerKind, Runner]]
    contract: Callable[[Mapping[str, Any]], Contract]
    records: WorkRecords
    signer: Signer
    trusted: Mapping[str, PublicKey]
    clock: Callable[[], datetime]
    exclusive: bool = False  #: only work items change the project
    engine: str = "auto"  #: where a call names none

    def run(
        self,
        item: WorkItem | Mapping[str, Any] | str | bytes | Path,
        *,
        engine: str | None = None,
        hear: process.Hear | None = None,
        stop: process.Stop | None = None,
    ) -> RunResult:
        """Carry out one work item on the project. A result for every outcome of its work.

        `hear` is called when the run has frozen its base, after each call of a tool, and when it
        is ready to commit; the run waits until it returns. Raises `Refused` for an item whose
        dependencies have not succeeded here, and `WorkInterrupted` on Ctrl-C.
        """
        parsed = item if isinstance(item, WorkItem) else WorkItem.parse(item)
        self.rooms.settings.require()
        self.agent(parsed.agent_id)  # an agent that does not exist is a refusal, not a failed run
        self._require_dependencies(parsed)
        self._require_readable_path()
        run_id = new_id()
        order: dict[str, Json] = {
            **self._place(),
            "do": "run",
            "run_id": run_id,
            "item": parsed.document(),
            "engine": engine or self.engine,
            "asked_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        }
        try:
            return RunResult.read(process.ask(order, hear, stop)["result"])
        except process.Died as death:
            result = self._ended(run_id, parsed, killed=death.killed)
            if result is None:
                raise WorkLost(
                    f"The work item's process ended without an answer ({death}).",
                    remedy="`actum doctor` tells what this host lacks; then run it again.",
                ) from death
            return result
        except KeyboardInterrupt as interrupt:
            raise WorkInterrupted(self._ended(run_id, parsed, killed=True)) from interrupt

    def _ended(self, run_id: str, item: WorkItem, *, killed: bool) -> RunResult | None:
        """What became of a run whose process is dead. What it had decided is carried through;
        otherwise it is closed as a failure."""
        recovering = self._recovering()
        recovering.all(wait=True)
        if killed and self.records.find(run_id) is None:
            agent = self.agent(item.agent_id)
            recovering.never_began(run_id, item, agent.sha256, self.root)
        kept = self.records.find(run_id)
        return None if kept is None else kept.result

    def _require_readable_path(self) -> None:
        try:
            str(self.root).encode()
        except UnicodeEncodeError as error:
            raise Refused(
                "WORKSPACE_PATH_NOT_UTF8",
                f"The path of the project is no UTF-8: {str(self.root)!r}.",
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

    def here(self, order: Mapping[str, Any], tell: process.Hear) -> dict[str, Json]:
        """Carry out one order, in the process that was started for it."""
        item = WorkItem.parse(order["item"])
        agent = self.agent(item.agent_id)
        if order["do"] == "trial":
            shop = self._shop(Path(order["base"]), order["engine"])
            shop = replace(shop, rehearsal=True, tell=tell)
            return execute_trial(item, agent, shop).document()
        if order["do"] == "again":
            base = Path(order["base"])
            return {"state": execute_again(item, agent, self._shop(base, order["engine"]))}
        shop = self._shop(self.root, order["engine"])
        shop = replace(shop, tell=tell, asked_ns=order["asked_ns"])
        return {"result": execute_work_item(item, agent, shop, order["run_id"]).document()}

    def agent(self, agent_id: str) -> Agent:
        return load_agent(self.root, agent_id, self.rooms.registry)

    def state_hash(self, base: Path | None = None) -> str:
        """The hash of a workspace as it is on the disk now."""
        if base is None or base == self.root:
            return Space(self.home, self.root).scan().state.hash
        with self._throwaway(base) as space:
            return space.scan().state.hash

    def restore(self, run_id: str, target: Path) -> str:
        """Bring the state from before a run into `target`, a new or empty folder; its hash.

        What the replay script has checked out in a throwaway home is replaced by what was there
        before the run.
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
        """Do the work of a run once more on `base`, a restored state; the hash it leads to."""
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
                answer = process.ask(order)
        except process.Died as death:
            raise WorkLost(
                f"The replay's process ended without an answer ({death}).", remedy="Run it again."
            ) from death
        return str(answer["state"])

    def _require_apart(self, folder: Path) -> None:
        """Neither in the project nor around it. By inode too: a bind mount is another path."""
        folder = folder.resolve()
        if not (
            self.root.is_relative_to(folder)
            or any(_is_same(outer, self.root) for outer in (folder, *folder.parents))
            or any(_is_same(outer, folder) for outer in self.root.parents)
        ):
            return
        raise Refused(
            "REPLAY_IN_PROJECT",
            f"{folder} and the project {self.root} hold each other.",
            remedy="A replay changes its folder without a record. Name a folder outside of the"
            " project; `actum item restore` fills it.",
        )

    def _of_this_project(self, run_id: str) -> KeptRun:
        kept = self.find(run_id)
        if kept.workspace != self.root:
            # A home is copied and moved with its project: the folder on record may be another's.
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
                remedy="`actum work` and `actum item run` tell the id of the receipt, in full; the"
                " run's own stands in it, as `run_id`.",
            )
        return kept

    @contextlib.contextmanager
    def copied(self) -> Iterator[Path]:
        """A copy of the project for rehearsals, and nothing of it afterwards."""
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
        hear: process.Hear | None = None,
        stop: process.Stop | None = None,
    ) -> Rehearsed:
        """What would come of an item: carried out on `base`, a copy. Nothing is on record."""
        order: dict[str, Json] = {
            **self._place(),
            "do": "trial",
            "item": item.document(),
            "base": str(base),
            "engine": self.engine,
        }
        try:
            return Rehearsed.read(process.ask(order, hear, stop))
        except process.Died as death:
            raise WorkLost(
                f"The rehearsal's process ended without an answer ({death}).",
                remedy="Run it again; the project was not touched.",
            ) from death

    def undo(self, name: str) -> RunResult:
        """Take back the run of a receipt, or of a run's own id."""
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
            self.recover()  # past its commit point it goes on at once, not with the next command
            raise

    def accept(self, name: str) -> RunResult:
        """Record that a person takes the project as it is, after a run that left it damaged."""
        kept = self.find(self.records.of_receipt(name) or name)
        return accept(kept, self._recovering())

    def recover(self) -> None:
        """Finish what processes that are gone have left."""
        if (self.home / "work").is_dir():
            self._recovering().all()

    def _recovering(self) -> Recovering:
        return Recovering(
            home=self.home, records=self.records, signer=self.signer, clock=self.clock
        )

    def _place(self) -> dict[str, Json]:
        return {"root": str(self.root), "home": str(self.home)}

    def _shop(self, base: Path, engine: str) -> Shop:
        return Shop(
            rooms=self.rooms,
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
        return False  # not there yet, or closed to this user


def _make_empty(target: Path) -> None:
    """A new or empty folder. A full one is emptied only inside of a throwaway home."""
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
