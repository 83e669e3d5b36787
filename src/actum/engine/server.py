"""A tool that is kept running, as an execution of its own: prepared, recorded, opened, sealed.

What is asked of it while it runs are executions too, each naming this one's receipt as its parent.
Nothing here understands what is said over the channel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from actum.adapters.kinds import build_call
from actum.capture.model import Capture
from actum.contract.call import Call
from actum.contract.limits import IDLE_S
from actum.contract.model import Contract, Json
from actum.engine.account import Account
from actum.engine.attempts import Ready
from actum.engine.pipeline import prepare
from actum.engine.result import Result
from actum.engine.rooms import Rooms
from actum.errors import Refused
from actum.evidence.facts import Stage
from actum.policy.gates import Granted
from actum.registry.model import AdapterKind, Entry
from actum.runners.base import Cancel, Channel
from actum.value import replace

T = TypeVar("T")


class Server:
    """An open execution. Whoever opened it closes it, once or more often."""

    def __init__(self, account: Account, ready: Ready, channel: Channel) -> None:
        self.channel = channel
        self.plan = ready.plan
        self.runner = ready.runner
        self.execution_id = account.intent.execution_id
        self.trace_id = account.intent.trace_id
        self.receipt_id = account.intent.receipt_id
        self._account = account
        self._ready = ready
        self._closing = threading.Lock()
        self._closed: tuple[Result, Capture] | None = None

    def close(self, totals: Mapping[str, Json] | None = None) -> tuple[Result, Capture]:
        """End it, and seal what it was. What it said is no output, so nothing is made of it.

        With `totals`, what it was used for is on record, and what it said is in its calls alone.
        """
        with self._closing:
            if self._closed is None:
                capture = _or_sealed(self._account, self.channel.close)
                if totals is not None:
                    self._account.tell_session(totals)
                    capture = replace(capture, stdout=replace(capture.stdout, kept=b""))
                # Bytes of a program, whatever the adapter makes of the answers in them.
                adapter = replace(self._ready.adapter, kind=AdapterKind.CLI, output_transforms=())
                result = self._account.seal(self._ready.plan, adapter, capture)
                self._closed = result, capture
        return self._closed


def open_server(
    contract: Contract,
    rooms: Rooms,
    *,
    build: Callable[[Contract, Entry], Call] = build_call,
    granted: tuple[Granted, ...] = (),
    cancel: Cancel | None = None,
    trace_id: str | None = None,
    parent_receipt: str | None = None,
    idle_s: float = IDLE_S,
) -> Server:
    """Start what `contract` asks for and keep it. A refusal is sealed, and raised as well."""
    account = Account(contract, rooms, trace_id, parent_receipt)

    def start() -> Server:
        # A server that is kept writes directly: others must see what a call has done.
        direct = replace(rooms, policy=replace(rooms.policy, always_direct=True))
        ready = prepare(contract, direct, account, build=build, granted=granted)
        account.stage = Stage.WRITE_AHEAD
        channel = ready.runner.open(
            ready.plan, account.trace.emit, cancel, account.open, idle_s=idle_s
        )
        account.require_open(ready.runner)
        return Server(account, ready, channel)

    return _or_sealed(account, start)


def _or_sealed(account: Account, do: Callable[[], T]) -> T:
    try:
        return do()
    except Refused as refusal:
        told, _result = account.seal_refusal(refusal)
        raise told from refusal.__cause__
    except BaseException as error:
        account.seal_error(error)
        raise
