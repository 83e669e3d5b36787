"""A tool that is kept running for several calls, as an execution of its own.

Each call is an execution too, and names this one's receipt as its parent. This module does not
interpret the messages on the channel.

The tool's changes are one transaction, settled when the tool has ended: between two calls it may
still be writing. A server that lives for one call writes to the layers of that call instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from actum.adapters.kinds import build_call
from actum.capture.model import Cancelled, Capture, LimitKilled, PolicyBroken
from actum.contract.call import SealedInput, bound
from actum.contract.limits import IDLE_S
from actum.contract.model import Contract, Json
from actum.errors import Refused
from actum.evidence.records.facts import Stage
from actum.evidence.records.trace import EventType
from actum.execution.attempt import ask_to_commit, may_start
from actum.execution.execution import Execution, Options
from actum.execution.pipeline import conclude, seal_failure, seal_refusal
from actum.execution.preparation import Build, Ready, prepare
from actum.execution.result import Result
from actum.execution.services import Services
from actum.execution.transactions import Begun
from actum.policy.gates import Granted
from actum.registry.model import AdapterKind
from actum.runners.base import Cancel, Channel
from actum.value import replace
from actum.workspace.transaction import await_later_changes

#: Endings of a kept tool that Actum caused, between calls or during one.
_STOPPED = (LimitKilled, PolicyBroken, Cancelled)
_NO_LAYERS: Mapping[str, str] = {}


class Server:
    """An open execution. Its opener closes it; a second `close` returns the same result."""

    def __init__(
        self,
        execution: Execution,
        ready: Ready,
        channel: Channel,
        changes: Begun | None,
    ) -> None:
        self.channel = channel
        self.plan = ready.plan
        self.runner = ready.runner
        self.execution_id = execution.intent.execution_id
        self.trace_id = execution.intent.trace_id
        self.receipt_id = execution.intent.receipt_id
        self._execution = execution
        self._ready = ready
        self._changes = changes
        self._closing = threading.Lock()
        self._closed: tuple[Result, Capture] | None = None

    def close(
        self, totals: Mapping[str, Json] | None = None, *, broken_off: bool = False
    ) -> tuple[Result, Capture]:
        """End the tool and seal its execution. Its messages are no output and are not transformed.

        `totals` goes on record as how the tool was used; its stdout is then in its calls alone.
        `broken_off`: a call was stopped in the middle, so the files are in an undefined state. The
        tool's own deadline may pass between two calls, which breaks nothing off.
        """
        with self._closing:
            if self._closed is None:
                execution = self._execution
                with _sealed_if_it_fails(execution):
                    capture = self._settled(broken_off)
                if totals is not None:
                    execution.emit(EventType.SESSION, totals, execution.elapsed_ms)
                    capture = replace(capture, stdout=replace(capture.stdout, kept=b""))
                # The raw bytes of a program; the adapter transforms only the answers in them.
                adapter = replace(self._ready.adapter, kind=AdapterKind.CLI, output_transforms=())
                result = conclude(execution, adapter, capture)
                self._closed = result, capture
                execution.sealed_inputs.close()
        return self._closed

    def _settled(self, broken_off: bool) -> Capture:
        if self._changes is None:
            return self.channel.close()
        try:
            capture = self.channel.close()
            capture = replace(capture, leftovers=capture.left(), cleanup=None)
            return self._changes.settle(
                capture,
                stopped=broken_off or isinstance(capture.ending, _STOPPED),
                wanted=self._execution.options.changes,
                ask=partial(ask_to_commit, self._execution),
            )
        except BaseException:
            self._changes.abandon()
            raise


def open_server(
    contract: Contract,
    services: Services,
    *,
    build: Build = build_call,
    granted: tuple[Granted, ...] = (),
    inherited: tuple[SealedInput, ...] = (),
    cancel: Cancel | None = None,
    trace_id: str | None = None,
    parent_receipt: str | None = None,
    idle_s: float = IDLE_S,
    layers: Mapping[str, str] = _NO_LAYERS,
    changes: str = "commit",
) -> Server:
    """Start the tool and keep it running. A refusal is sealed, and raised as well.

    `layers`: of a transaction that another execution settles. Without them, the server's changes
    are a transaction of its own, and `changes` is what becomes of it (`Begun.settle`).
    """
    options = Options(cancel=cancel, changes=changes)
    execution = Execution(
        contract, services, options, trace_id=trace_id, parent_receipt=parent_receipt
    )
    with _sealed_if_it_fails(execution):
        if contract.inputs.input_files:
            raise Refused(
                "INPUT_NOT_SEALED",
                "inputs.input_files: a tool that is kept for several calls cannot be given sealed"
                " files: the seal is checked when it has ended.",
                remedy="Name the files in the calls, or run each call by itself.",
            )
        ready = prepare(execution, contract, build=build, granted=granted, inherited=inherited)
        execution.stage = Stage.WRITE_AHEAD
        return _start(execution, ready, idle_s, layers)


def _start(execution: Execution, ready: Ready, idle_s: float, layers: Mapping[str, str]) -> Server:
    plan, changes, runner = ready.plan, None, ready.runner
    permit = partial(may_start, execution)
    if plan.policy.transaction and layers:
        plan = bound(replace(plan, layers=layers))
        permit = partial(may_start, execution, await_later_changes)
    elif plan.policy.transaction:
        changes = Begun(plan, execution.services.settlement)
        plan = changes.plan
        permit = partial(may_start, execution, changes.wait)
    try:
        if changes is not None:
            changes.copy(runner.takes_overlay)
        channel = runner.open(
            plan, execution.trace.emit, execution.options.cancel, permit, idle_s=idle_s
        )
        execution.require_open(runner)
    except BaseException:
        if changes is not None:
            changes.abandon()
        raise
    return Server(execution, ready, channel, changes)


@contextmanager
def _sealed_if_it_fails(execution: Execution) -> Iterator[None]:
    try:
        yield
    except Refused as refusal:
        execution.sealed_inputs.close()
        named, _result = seal_refusal(execution, refusal)
        raise named from refusal.__cause__
    except BaseException as error:
        execution.sealed_inputs.close()
        seal_failure(execution, error)
        raise
