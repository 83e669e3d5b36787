"""The named steps of one execution, from the outside: which function is the step, and what must be
on record if the process dies right before or right after it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTHING, OPEN, CLOSED = "nothing", "open", "closed"


@dataclass(frozen=True)
class Point:
    name: str
    where: str  #: module:attribute path
    before: str  #: what is on record if the process dies before the step
    after: str

    def find(self) -> tuple[Any, str]:
        """(what holds the step, its name there)"""
        module, _, path = self.where.partition(":")
        holder: Any = importlib.import_module(module)
        *parents, attribute = path.split(".")
        for parent in parents:
            holder = getattr(holder, parent)
        return holder, attribute

    def install(self, when: str, strike: Callable[[], None]) -> None:
        """Wrap the step; the strike comes once."""
        holder, attribute = self.find()
        step = getattr(holder, attribute)
        struck: list[bool] = []

        def once() -> None:
            if not struck:
                struck.append(True)
                strike()

        @functools.wraps(step)
        def wrapped(*arguments: Any, **words: Any) -> Any:
            if when == "before":
                once()
            result = step(*arguments, **words)
            if when == "after":
                once()
            return result

        setattr(holder, attribute, wrapped)


_RUNNER = "actum.runners.local"
_CHANGES = "actum.workspace.transaction"

POINTS = (
    Point("open", "actum.runtime:Runtime.__init__", NOTHING, NOTHING),
    Point("parse", "actum.execution.contract_source:parse_contract", NOTHING, NOTHING),
    Point("completion", "actum.execution.contract_source:complete", NOTHING, NOTHING),
    Point("gate", "actum.execution.execution:Execution.__init__", NOTHING, NOTHING),
    Point("registry", "actum.registry.registry:Registry.entry", NOTHING, NOTHING),
    Point("call", "actum.adapters.kinds:transformed", NOTHING, NOTHING),
    Point("validation", "actum.execution.plan:check_inputs", NOTHING, NOTHING),
    Point("policy", "actum.execution.plan:effective_policy", NOTHING, NOTHING),
    Point("plan", "actum.execution.plan:make_plan", NOTHING, NOTHING),
    Point("foresight", f"{_RUNNER}:LocalRunner.foresee", NOTHING, NOTHING),
    Point("place", "actum.runners.concurrency:Queueing._take", NOTHING, NOTHING),
    Point("layers", f"{_CHANGES}:Transaction.begin", NOTHING, NOTHING),
    Point("member", "actum.sandbox.spawner_client:Spawner._take", NOTHING, NOTHING),
    Point("launch", "actum.sandbox.spawner_client:Spawner.launch", NOTHING, NOTHING),
    Point("write-ahead", "actum.evidence.ledger:Ledger.write_ahead", NOTHING, OPEN),
    Point("word to start", "actum.sandbox.handle:Sandbox.go", OPEN, OPEN),
    Point("first report", "actum.sandbox.handle:Sandbox.receive", OPEN, OPEN),
    Point("output", "actum.runners.supervise:drain", OPEN, OPEN),
    Point("end of the tool", "actum.runners.supervise:_conclude", OPEN, OPEN),
    Point("usage", "actum.sandbox.cgroup_v1:Group.usage", OPEN, OPEN),
    Point("collection", "actum.runners.attempt_steps:collect_outputs", OPEN, OPEN),
    Point("clean-up", "actum.runners.cleanup:Cleanup.found", OPEN, OPEN),
    Point("comparison", f"{_CHANGES}:Transaction.look", OPEN, OPEN),
    Point("stage", "actum.workspace.staging:stage", OPEN, OPEN),
    Point("what will go", "actum.workspace.commit:keep", OPEN, OPEN),
    Point("record of the changes", f"{_CHANGES}:Transaction._record", OPEN, OPEN),
    Point("intent", "actum.workspace.intent:write", OPEN, OPEN),
    Point("removal of what is gone", "actum.workspace.commit:_clear", OPEN, OPEN),
    Point("new folder", "actum.workspace.commit:_make_folder", OPEN, OPEN),
    Point("new content", "actum.workspace.commit:_put", OPEN, OPEN),
    Point("all changes", "actum.workspace.commit:apply", OPEN, OPEN),
    Point("end of the commit", "actum.workspace.intent:carry_through", OPEN, OPEN),
    Point("interpretation", "actum.execution.pipeline:conclude", OPEN, CLOSED),
    Point("session", "actum.store.session_memory:ProcessSessions.put", OPEN, OPEN),
    Point("signature", "actum.evidence.records.receipt:Receipt.__init__", OPEN, OPEN),
    Point("seal", "actum.evidence.ledger:Ledger.seal", OPEN, CLOSED),
    Point("export", "actum.evidence.receipts:Receipts.write", CLOSED, CLOSED),
    Point("close of the runner", f"{_RUNNER}:LocalRunner.close", CLOSED, CLOSED),
    Point("close", "actum.runtime:Runtime.close", CLOSED, CLOSED),
)
BY_NAME = {point.name: point for point in POINTS}


def children_of(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def kill(victim: str) -> None:
    """`actum` is this process, the spawner its child, the init the spawner's."""
    own = os.getpid()
    found = {
        "actum": [own],
        "spawner": children_of(own),
        "init": [init for spawner in children_of(own) for init in children_of(spawner)],
    }[victim]
    handles = {}
    for pid in found:
        # An init that has told its end leaves by itself, and may be faster than we are.
        with contextlib.suppress(ProcessLookupError):
            handles[pid] = os.pidfd_open(pid)
            signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
    # Until they are dead: what comes next is not to meet one that is just dying.
    for handle in handles.values():
        select.select([handle], [], [], 10)
        os.close(handle)
