"""What a run works with, and what is known of it so far. Knows no order of steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.model import Contract, RunnerKind
from actum.engine.rooms import Rooms
from actum.engine.work.admission import RunCapsule
from actum.engine.work.hands import Agent
from actum.engine.work.model import Metrics, WorkItem
from actum.engine.work.process import Hear
from actum.engine.work.receipt import Before
from actum.engine.work.records import WorkRecords
from actum.engine.work.recover import Recovering
from actum.runners.base import Runner
from actum.store.keys import Signer
from actum.value import field, replace, value
from actum.workspace.index import Scanned
from actum.workspace.space import Space
from actum.workspace.tree import Delta


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
    asked_ns: int | None = None  #: when the run was asked for (CLOCK_BOOTTIME)
    rehearsal: bool = False  #: on a copy, which nobody but other rehearsals changes
    tell: Hear | None = None  #: told how far a run has come, and may make it wait

    def recover(self, space: Space) -> None:
        """Finish what a crash left in a workspace; only while its lock is held alone."""
        Recovering(
            home=space.home, records=self.records, signer=self.signer, clock=self.clock
        ).space(space)


@value(frozen=False, kw_only=False)
class Run:
    """What is known so far."""

    before: Before
    deadline: float
    began: float
    room: Path
    state: str = ""  #: hash of what it ran on
    recorded: bool = False  #: opened in the records, with that hash
    looked: bool = True  #: at the disk, each time that the state had to be known
    tested_on: str = ""  #: hash of what its tests have seen it on
    waiting_s: float = 0.0  #: what was left of its time when it began to wait for its turn
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
        """Waiting for others is not its work: the clock of its own time stands still."""
        self.waiting_s = self.deadline - time.monotonic()

    def go_on(self) -> None:
        self.deadline = time.monotonic() + self.waiting_s

    def too_late(self) -> str:
        return f"The work item took longer than its {self.item.constraints.timeout_ms} ms."


def begun(item: WorkItem, agent: Agent, shop: Shop, run_id: str) -> Run:
    began = time.monotonic()
    before = Before(
        run_id=run_id,
        item=item,
        agent_sha256=agent.sha256,
        workspace=shop.space.base,
        started_at=shop.clock(),
    )
    room = shop.space.rooms / run_id
    return Run(before, began + item.constraints.timeout_ms / 1000, began, room)


def tell(run: Run, shop: Shop, at: str, **more: str) -> None:
    if shop.tell is not None:
        elapsed_ms = int((time.monotonic() - run.began) * 1000)
        shop.tell({"at": at, "item": run.item.id, "elapsed_ms": elapsed_ms, **more})


def seen(run: Run, shop: Shop, since_ns: int | None = None) -> Scanned:
    """The workspace's state as it is now, or was at some moment since."""
    last = shop.records.last_success(shop.space.base)
    with shop.space.index() as index:
        scanned = shop.space.seen(index, last[0] if last else None, since_ns=since_ns)
    run.looked = run.looked and scanned.looked
    return scanned


@contextlib.contextmanager
def at_work(shop: Shop) -> Iterator[Rooms]:
    """Rooms whose runners were started just now, and so see what is mounted just now."""
    runners = shop.runners()
    try:
        # The work item is the transaction: within it a tool writes to the item's own view.
        policy = replace(shop.rooms.policy, always_direct=True)
        yield replace(shop.rooms, runners=runners, policy=policy)
    finally:
        for runner in runners.values():
            runner.close()
