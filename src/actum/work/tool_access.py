"""Tool access of an agent. Each call goes through the whole pipeline and is counted.

This module is the autonomy guard. It stops a run when a count exceeds its limit, its time is over
or its space for changes is full: exactly before the next call, and during a call only if the limit
is far exceeded. The admission, which checks the result, decides in the end.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from actum.capture.model import DiffSummary
from actum.contract.call import Call
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, Json
from actum.contract.outcome import Outcome
from actum.errors import ContractInvalid
from actum.execution.execution import WorkStep
from actum.execution.kept_tool import Server, open_server
from actum.execution.pipeline import execute
from actum.execution.result import Result
from actum.execution.services import Services
from actum.registry.model import Entry
from actum.runners.base import Cancel
from actum.value import replace
from actum.work.admission import ToolOp
from actum.work.model import Status, WorkItem
from actum.workspace.engine import Census

_LOOK_EVERY_S = 0.1
_NAMES = ("execution_id", "metadata", "session")


class Ended(Exception):
    """The run ends before the agent is done."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Agent(Protocol):
    """An agent does the work of an item. It has the item and its tool access, and nothing else."""

    @property
    def sha256(self) -> str:
        """Of everything that decides what it does, so that duplicate runs are recognised."""
        ...

    def perform(self, item: WorkItem, tool_access: ToolAccess) -> None:
        """Do the work. Returns when it is done; raises `Ended` if it cannot be done."""
        ...


class ToolAccess:
    """The calls of one run. Thread-safe."""

    def __init__(
        self,
        item: WorkItem,
        services: Services,
        contract: Callable[[Mapping[str, Any]], Contract],
        *,
        deadline: float,
        trace_id: str,
        parent_receipt: str,
        census: Callable[[], Census],
        touched: Callable[[], tuple[int, int]],
        diff: Callable[[], DiffSummary | None],
        before_call: Callable[[str], None] = lambda _tool_id: None,
        after_call: Callable[[ToolOp], None] = lambda _op: None,
    ) -> None:
        self._before_call = before_call
        self._after_call = after_call
        self._item = item
        self._rooms = services
        self._contract = contract
        self.deadline = deadline  #: of the whole item, on the monotonic clock
        self._trace_id = trace_id
        self._parent_receipt = parent_receipt
        self._census = census
        self._touched = touched  #: (files, delta size), exact; its cost grows with the changes
        self._step = WorkStep(diff=diff)
        self._lock = threading.Lock()
        self._ops: list[ToolOp] = []
        self._ended: Ended | None = None

    @property
    def trace(self) -> tuple[ToolOp, ...]:
        return tuple(self._ops)

    @property
    def ended(self) -> Ended | None:
        """Why the run was ended, if it was; an agent that ignores it changes nothing."""
        return self._ended

    def time_left_ms(self) -> int:
        return max(0, int((self.deadline - time.monotonic()) * 1000))

    def call(self, document: Mapping[str, Json]) -> Result:
        """Execute one contract (without the fields that are filled in), or raise `Ended`."""
        op = self._begin(document)
        try:
            contract = self._contract(document)
        except ContractInvalid:
            self._ops[op] = replace(self._ops[op], outcome=Outcome.REJECTED.value)
            raise
        self._before_call(contract.tool_id)
        with self._watched() as cancel:
            result = self._execute(contract, cancel)
        with self._lock:
            self._ops[op] = ToolOp(
                tool_id=result.tool_id,
                input_digest=self._ops[op].input_digest,
                outcome=result.outcome.value,
                execution_id=result.execution_id,
                receipt_id=result.receipt_id,
                duration_ms=result.result.duration_ms if result.result else 0,
            )
        self._after_call(self._ops[op])
        if self._ended is None and result.outcome is Outcome.TIMED_OUT and not self.time_left_ms():
            self._end(Status.TIMEOUT, self._too_late())
        if self._ended is not None:
            raise self._ended
        return result

    @contextlib.contextmanager
    def keep(
        self, document: Mapping[str, Json], build: Callable[[Contract, Entry], Call]
    ) -> Iterator[Server]:
        """Run the agent's own program under the same guard. It is not a tool operation."""
        policy = replace(self._rooms.policy, time_left_ms=self.time_left_ms())
        with self._watched() as cancel:
            server = open_server(
                self._contract(document),
                replace(self._rooms, policy=policy),
                build=build,
                cancel=cancel,
                trace_id=self._trace_id,
                parent_receipt=self._parent_receipt,
                idle_s=max(1.0, self.time_left_ms() / 1000),
            )
            try:
                yield server
            finally:
                server.close()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[Cancel]:
        """While a program runs, the host watches its changes, and can end it."""
        cancel = Cancel()
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(cancel, over), daemon=True)
        watch.start()
        try:
            yield cancel
        finally:
            over.set()
            watch.join()
            cancel.close()

    def require_success(self, result: Result) -> Result:
        """For agents that cannot continue after a failed call."""
        if result.outcome is Outcome.SUCCEEDED:
            return result
        codes = ", ".join(result.reason_codes)
        said = "; ".join(violation.message for violation in result.violations)
        if not said and result.result is not None:
            said = (result.result.stderr or result.result.error_reason or "").strip()[-500:]
        reason = f"Tool error: {result.tool_id}: {result.outcome.value} ({codes}) {said}".rstrip()
        refused = result.outcome in (Outcome.REJECTED, Outcome.POLICY_VIOLATION)
        raise Ended(Status.DENIED if refused else Status.FAILURE, reason)

    def _begin(self, document: Mapping[str, Json]) -> int:
        limits = self._item.constraints
        with self._lock:
            if self._ended is not None:
                raise self._ended
            if not self.time_left_ms():
                raise self._end(Status.TIMEOUT, self._too_late())
            ops = len(self._ops) + 1
            files, size = self._touched()
            if files > limits.max_files:
                raise self._end(Status.DENIED, f"Exceeded max files: {files} > {limits.max_files}")
            if ops > limits.max_tool_ops:
                raise self._end(
                    Status.DENIED, f"Exceeded max tool ops: {ops} > {limits.max_tool_ops}"
                )
            if size > limits.max_delta_size:
                raise self._end(
                    Status.DENIED, f"Exceeded max delta size: {size} > {limits.max_delta_size}"
                )
            # Without requester and purpose: names and ids do not make it another call.
            asked = {key: value for key, value in document.items() if key not in _NAMES}
            self._ops.append(
                ToolOp(
                    tool_id=str(document.get("tool_id", "")),
                    input_digest=sha256_json(asked),
                    outcome="PENDING",
                )
            )
            return ops - 1

    def refuse(self, tool_id: str, asked: Mapping[str, Json]) -> None:
        """Count a call that is refused before the pipeline: it is an operation too."""
        op = self._begin({"tool_id": tool_id, **asked})
        self._ops[op] = replace(self._ops[op], outcome=Outcome.REJECTED.value)
        self._after_call(self._ops[op])

    def _execute(self, contract: Contract, cancel: Cancel) -> Result:
        policy = replace(self._rooms.policy, time_left_ms=self.time_left_ms())
        return execute(
            contract,
            replace(self._rooms, policy=policy),
            cancel=cancel,
            trace_id=self._trace_id,
            parent_receipt=self._parent_receipt,
            work=self._step,
        )

    def _watch(self, cancel: Cancel, over: threading.Event) -> None:
        """Watch a running tool. A program may change a file and restore it, so only a count far
        over the limit, twice in a row, ends it here."""
        far = 2 * self._item.constraints.max_files + 16
        before = 0
        while not over.wait(_LOOK_EVERY_S):
            census = self._census()
            if census.full:
                self._end(Status.FAILURE, "The work item filled its space for changes.")
            elif min(before, census.files) > far:
                limit = self._item.constraints.max_files
                self._end(Status.DENIED, f"Exceeded max files: {census.files} > {limit}")
            before = census.files
            if self._ended is not None:
                cancel.cancel()
                return

    def _end(self, status: Status, reason: str) -> Ended:
        self._ended = self._ended or Ended(status, reason)
        return self._ended

    def too_late(self) -> Ended:
        return self._end(Status.TIMEOUT, self._too_late())

    def _too_late(self) -> str:
        return f"The work item took longer than its {self._item.constraints.timeout_ms} ms."
