"""Where work items are asked for: each is carried out in a process of its own.

`run` asks and waits; `here` is the other side, inside that process. Between them travels data
only: the item and where to work.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.agents.steps import load_agent
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json, RunnerKind
from actum.engine.rooms import Rooms
from actum.engine.work import process
from actum.engine.work.carry import execute_again, execute_trial, execute_work_item
from actum.engine.work.hands import Agent
from actum.engine.work.model import Rehearsed, RunResult, WorkItem
from actum.engine.work.records import KeptRun, WorkRecords
from actum.engine.work.recover import recover_work
from actum.engine.work.run import Shop
from actum.engine.work.undo import Undoing, undo
from actum.errors import Fault, Refused
from actum.runners.base import Runner
from actum.store.keys import PublicKey, Signer
from actum.value import replace, value
from actum.workspace import commit, copying, files
from actum.workspace.space import Space

#: Largest amount of changes that a work item can have, and of memory that they take meanwhile.
CAP_BYTES = 256 << 20


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
    exclusive: bool = False  #: nobody else changes the project

    def run(
        self,
        item: WorkItem | Mapping[str, Any] | str | bytes | Path,
        *,
        engine: str = "auto",
        hear: process.Hear | None = None,
    ) -> RunResult:
        """Carry out one work item on the project. A result for every outcome of its work.

        `hear` is told when the run has frozen its base, after each call of a tool, and when it is
        ready to commit; the run waits until it returns.
        """
        parsed = item if isinstance(item, WorkItem) else WorkItem.parse(item)
        self.agent(parsed.agent_id)  # an agent that does not exist is a refusal, not a failed run
        run_id = new_id()
        order: dict[str, Json] = {
            **self._place(),
            "do": "run",
            "run_id": run_id,
            "item": parsed.document(),
            "engine": engine,
            "asked_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        }
        try:
            return RunResult.read(process.ask(order, hear)["result"])
        except process.Died as death:
            # Whatever it had decided is carried through; otherwise it is closed as a failure.
            self.recover()
            kept = self.records.find(run_id)
            if kept is None or kept.result is None:
                raise WorkLost(
                    f"The work item's process ended without an answer ({death}).",
                    remedy="`actum doctor` tells what this host lacks; then run it again.",
                ) from death
            return kept.result

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
        folder = self.root if base is None else base
        space = Space(self.home, folder)
        try:
            return space.scan().state.hash
        finally:
            if folder != self.root:
                shutil.rmtree(space.folder, ignore_errors=True)

    def restore(self, run_id: str, target: Path) -> str:
        """Bring the state from before a run into `target`; its hash.

        What is there already and right (a git worktree) is replaced by the very same.
        """
        kept = self.find(run_id)
        space = Space(self.home, kept.workspace)
        with space.held(alone=False), _opened(kept.workspace) as source:
            target.mkdir(mode=0o700, exist_ok=True)
            with _opened(target) as there:
                _emptied(there)
                copying.copy_tree(source, there, space.skip)
                for later in self.records.successes_since(run_id):
                    steps, old = space.backward(later)
                    _undo(steps, there, old, target)
        return self.state_hash(target)

    def again(self, run_id: str, base: Path) -> str:
        """Do the work of a run once more on `base`, a restored state; the hash it leads to."""
        kept = self.find(run_id)
        order: dict[str, Json] = {
            **self._place(),
            "do": "again",
            "item": kept.item.document(),
            "base": str(base.resolve()),
            "engine": "auto",
        }
        try:
            answer = process.ask(order)
        except process.Died as death:
            raise WorkLost(
                f"The replay's process ended without an answer ({death}).", remedy="Run it again."
            ) from death
        finally:
            shutil.rmtree(Space(self.home, base.resolve()).folder, ignore_errors=True)
        return str(answer["state"])

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
        with tempfile.TemporaryDirectory(prefix="actum-rehearsal-") as name:
            base = Path(name).resolve() / self.root.name
            space = Space(self.home, self.root)
            with space.held(alone=False), _opened(self.root) as source:
                base.mkdir(mode=0o700)
                with _opened(base) as there:
                    copying.copy_tree(source, there, space.skip)
            try:
                yield base
            finally:
                shutil.rmtree(Space(self.home, base).folder, ignore_errors=True)

    def rehearse(
        self, item: WorkItem, base: Path, *, hear: process.Hear | None = None
    ) -> Rehearsed:
        """What would come of an item: carried out on `base`, a copy. Nothing is on record."""
        order: dict[str, Json] = {
            **self._place(),
            "do": "trial",
            "item": item.document(),
            "base": str(base),
            "engine": "auto",
        }
        try:
            return Rehearsed.read(process.ask(order, hear))
        except process.Died as death:
            raise WorkLost(
                f"The rehearsal's process ended without an answer ({death}).",
                remedy="Run it again; the project was not touched.",
            ) from death

    def undo(self, name: str) -> RunResult:
        """Take back the run of a receipt, or of a run's own id."""
        kept = self.find(self.records.of_receipt(name) or name)
        tools = Undoing(
            space=Space(self.home, kept.workspace),
            records=self.records,
            signer=self.signer,
            trusted=self.trusted,
            clock=self.clock,
        )
        return undo(kept, tools)

    def recover(self) -> None:
        recover_work(self.home, self.records, self.signer, self.clock)

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


def _emptied(folder: int) -> None:
    for name in os.listdir(folder):
        if name == ".git":
            continue  # of a git worktree; no part of the state
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if files.kind_of(found.st_mode).value == "d":
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _undo(steps: tuple[commit.Step, ...], there: int, old: Path, target: Path) -> None:
    """Apply the steps from copies: what is kept stays kept."""
    stage = target.parent / f"{target.name}.undo"
    shutil.copytree(old, stage, symlinks=True)
    try:
        commit.apply(steps, there, stage)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
