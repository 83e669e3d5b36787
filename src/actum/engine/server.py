"""A tool that is kept running, as an execution of its own: prepared, recorded, opened, sealed.

What is asked of it while it runs are executions too, each naming this one's receipt as its parent.
Nothing here understands what is said over the channel.

What it changes is one transaction, settled when it has ended: between two calls nobody can say that
its files are at rest. A server that lives for one call writes to the layers of that call instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from actum.adapters.kinds import build_call
from actum.capture.model import Cancelled, Capture, LimitKilled, PolicyBroken
from actum.contract.call import Call, SealedInput
from actum.contract.limits import IDLE_S
from actum.contract.model import Contract, Json
from actum.engine.account import Account
from actum.engine.attempts import Ready
from actum.engine.pipeline import prepare
from actum.engine.result import Result
from actum.engine.rooms import Rooms
from actum.engine.transactions import Begun
from actum.errors import Refused
from actum.evidence.facts import Stage
from actum.policy.gates import Granted
from actum.registry.model import AdapterKind, Entry
from actum.runners.base import Cancel, Channel
from actum.value import replace
from actum.workspace.transaction import await_later_changes

T = TypeVar("T")

#: Endings of a kept tool that are Actum's doing, whatever was asked of it then.
_STOPPED = (LimitKilled, PolicyBroken, Cancelled)
_NO_LAYERS: Mapping[str, str] = {}


class Server:
    """An open execution. Whoever opened it closes it, once or more often."""

    def __init__(
        self,
        account: Account,
        ready: Ready,
        channel: Channel,
        changes: Begun | None = None,
        wanted: str = "commit",
    ) -> None:
        self.channel = channel
        self.plan = ready.plan
        self.runner = ready.runner
        self.execution_id = account.intent.execution_id
        self.trace_id = account.intent.trace_id
        self.receipt_id = account.intent.receipt_id
        self._account = account
        self._ready = ready
        self._changes = changes
        self._wanted = wanted
        self._closing = threading.Lock()
        self._closed: tuple[Result, Capture] | None = None

    def close(
        self, totals: Mapping[str, Json] | None = None, *, broken_off: bool = False
    ) -> tuple[Result, Capture]:
        """End it, and seal what it was. What it said is no output, so nothing is made of it.

        With `totals`, what it was used for is on record, and what it said is in its calls alone.
        `broken_off`: a call was stopped in the middle, so its files are in no state that anybody
        has asked for. Its own time may pass between two calls, which breaks nothing off.
        """
        with self._closing:
            if self._closed is None:
                capture = _or_sealed(self._account, lambda: self._settled(broken_off))
                if totals is not None:
                    self._account.tell_session(totals)
                    capture = replace(capture, stdout=replace(capture.stdout, kept=b""))
                # Bytes of a program, whatever the adapter makes of the answers in them.
                adapter = replace(self._ready.adapter, kind=AdapterKind.CLI, output_transforms=())
                result = self._account.seal(self._ready.plan, adapter, capture)
                self._closed = result, capture
                self._account.sealed.close()
        return self._closed

    def _settled(self, broken_off: bool) -> Capture:
        if self._changes is None:
            return self.channel.close()
        try:
            capture = self.channel.close()
            capture = replace(capture, leftovers=capture.left(), clearing=None)
            return self._changes.settle(
                capture,
                stopped=broken_off or isinstance(capture.ending, _STOPPED),
                wanted=self._wanted,
                ask=self._account.ask_to_commit,
            )
        except BaseException:
            self._changes.abandon()
            raise


def open_server(
    contract: Contract,
    rooms: Rooms,
    *,
    build: Callable[[Contract, Entry], Call] = build_call,
    granted: tuple[Granted, ...] = (),
    inherited: tuple[SealedInput, ...] = (),
    cancel: Cancel | None = None,
    trace_id: str | None = None,
    parent_receipt: str | None = None,
    idle_s: float = IDLE_S,
    layers: Mapping[str, str] = _NO_LAYERS,
    changes: str = "commit",
) -> Server:
    """Start what `contract` asks for and keep it. A refusal is sealed, and raised as well.

    `layers`: of a transaction that another execution settles. Without, what the server changes is
    a transaction of its own, and `changes` says what is wanted done with it (`Begun.settle`).
    """
    account = Account(contract, rooms, trace_id, parent_receipt)

    def start() -> Server:
        if contract.inputs.input_files:
            raise Refused(
                "INPUT_NOT_SEALED",
                "inputs.input_files: a tool that is kept for several calls cannot be given sealed"
                " files: the seal is checked when it has ended.",
                remedy="Name the files in the calls, or run each call by itself.",
            )
        ready = prepare(contract, rooms, account, build=build, granted=granted, inherited=inherited)
        account.stage = Stage.WRITE_AHEAD
        plan, begun, await_start = ready.plan, None, _at_once
        if plan.policy.transaction and layers:
            plan, await_start = replace(plan, layers=layers), await_later_changes
        elif plan.policy.transaction:
            begun = Begun(plan, rooms.settlement)
            plan, await_start = begun.plan, begun.wait

        def may_start() -> None:
            account.open()
            await_start()

        try:
            if begun is not None:
                begun.copy(ready.runner.takes_overlay)
            channel = ready.runner.open(plan, account.trace.emit, cancel, may_start, idle_s=idle_s)
            account.require_open(ready.runner)
        except BaseException:
            if begun is not None:
                begun.abandon()
            raise
        return Server(account, ready, channel, begun, changes)

    return _or_sealed(account, start)


def _or_sealed(account: Account, do: Callable[[], T]) -> T:
    try:
        return do()
    except Refused as refusal:
        account.sealed.close()
        told, _result = account.seal_refusal(refusal)
        raise told from refusal.__cause__
    except BaseException as error:
        account.sealed.close()
        account.seal_error(error)
        raise


def _at_once() -> None:
    """What is written directly is compared with nothing."""
