"""The context and the state of a run. Does not know the order of its steps."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.model import Contract, RunnerKind
from actum.execution.services import Services
from actum.runners.base import Runner
from actum.store.keys import Signer
from actum.value import field, replace, value
from actum.work.admission import RunCapsule
from actum.work.item_process import Hear
from actum.work.model import Metrics, WorkItem, path_of
from actum.work.step_caps import StepCaps
from actum.work.tool_access import Agent
from actum.work.work_receipt import Before
from actum.work.work_records import WorkRecords
from actum.work.work_recovery import Recovering
from actum.workspace.engine import Engine
from actum.workspace.index import Index, Scanned
from actum.workspace.level_base import LevelBase
from actum.workspace.space import Space
from actum.workspace.tree import Delta


@value
class ItemContext:
    """Everything that a run uses; `WorkItems` builds it."""

    services: Services
    #: New ones, which see the current mounts, and are given the host folders of an `Engine`.
    runners: Callable[[Mapping[str, str]], Mapping[RunnerKind, Runner]]
    contract: Callable[[Mapping[str, Any]], Contract]
    space: Space  #: of the folder that the run changes
    place: Path  #: the path at which agents see it
    records: WorkRecords
    signer: Signer
    clock: Callable[[], datetime]
    cap_bytes: int
    engine: str = "auto"  #: or ``overlay``, or ``copy``
    containers: bool = False  #: whether tools may run in containers, which take a copy only
    ignored: tuple[str, ...] = ()  #: patterns of paths on which the last item wins
    test_tool: str = "TL-010"
    rehearsal: bool = False  #: on a copy, which only rehearsals change
    caps: StepCaps | None = None  #: of the run that the item is a step of
    tell: Hear | None = None  #: receives the progress of a run, and may block it
    level: LevelBase | None = None  #: the frozen state of its level; else the item freezes one

    @property
    def frozen(self) -> Path:
        """The folder with the state that the run works on."""
        return self.space.base if self.level is None else self.level.tree

    def index(self) -> contextlib.AbstractContextManager[Index]:
        """The index of that state."""
        return self.space.index() if self.level is None else self.level.index()

    def recover(self, space: Space) -> None:
        """Finish what a crash left in a workspace; requires its exclusive lock."""
        Recovering(
            home=space.home, records=self.records, signer=self.signer, clock=self.clock
        ).space(space)


@value(frozen=False, kw_only=False)
class Run:
    """The state of a run so far."""

    before: Before
    deadline: float
    began: float
    room: Path
    state: str = ""  #: hash of the state it ran on
    recorded: bool = False  #: opened in the records with that hash
    held: bool = False  #: stored when it was ready, by another process
    looked: bool = True  #: every state was scanned; else an index was trusted
    tested_on: str = ""  #: hash of the state that its tests ran on
    waiting_s: float = 0.0  #: time that was left when it began to wait for its turn
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

    def wait(self) -> None:
        """Stop the clock of its own time: waiting for others does not count."""
        self.waiting_s = self.deadline - time.monotonic()

    def go_on(self) -> None:
        self.deadline = time.monotonic() + self.waiting_s

    def too_late(self) -> str:
        return f"The work item took longer than its {self.item.constraints.timeout_ms} ms."


def begun(item: WorkItem, agent: Agent, context: ItemContext, run_id: str) -> Run:
    began = time.monotonic()
    before = Before(
        run_id=run_id,
        item=item,
        agent_sha256=agent.sha256,
        workspace=context.space.base,
        started_at=context.clock(),
    )
    room = context.space.run_folders / run_id
    return Run(before, began + item.constraints.timeout_ms / 1000, began, room)


def declared_outputs(item: WorkItem, context: ItemContext) -> set[str]:
    return {
        os.path.relpath(path_of(name, context.place), context.place) for name in item.output_files
    }


def tell(run: Run, context: ItemContext, at: str, **more: str) -> Any:
    """Report progress; returns the answer."""
    if context.tell is None:
        return None
    elapsed_ms = int((time.monotonic() - run.began) * 1000)
    return context.tell({"at": at, "item": run.item.id, "elapsed_ms": elapsed_ms, **more})


def seen(run: Run, context: ItemContext) -> Scanned:
    """The workspace's state now."""
    last = context.records.last_success(context.space.base)
    with context.space.index() as index:
        scanned = context.space.seen(index, last[0] if last else None)
    run.looked = run.looked and scanned.looked
    return scanned


@contextlib.contextmanager
def at_work(context: ItemContext, engine: Engine) -> Iterator[Services]:
    """Services with newly started runners, which see the current mounts."""
    runners = context.runners(engine.host_folders)
    local = runners.get(RunnerKind.LOCAL)
    if local is not None and hasattr(local, "warm_up"):  # a runner of a test has none
        local.warm_up()  # it starts while the first call is prepared
    try:
        # The work item is the transaction: its tools write directly to the item's own view.
        policy = replace(context.services.policy, always_direct=True)
        yield replace(context.services, runners=runners, policy=policy)
    finally:
        for runner in runners.values():
            runner.close()
