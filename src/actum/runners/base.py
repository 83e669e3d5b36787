"""The port every runner implements, and the only room that starts tools.

A runner carries out a `Plan` exactly once. It selects nothing, validates no argument, widens no
permission and never retries. What it cannot enforce on this host it refuses before the start.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from actum.capture.model import Capture, Enforced
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.limits import IDLE_S, MESSAGE_BYTES
from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.evidence.trace import Emit
from actum.value import value

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction

#: Called with (``"stdout"`` or ``"stderr"``, bytes) while the tool runs, for a live terminal.
OnOutput = Callable[[str, bytes], None]

#: Called once, when everything is prepared and before the tool is started; returns when the
#: start is on record. If it raises, nothing was started and nothing may be left behind.
Permit = Callable[[], None]


class Cancel:
    """A caller's way to end an attempt from another thread or a signal handler.

    It holds a descriptor only once somebody polls: a thousand requests that wait need none.
    """

    def __init__(self) -> None:
        self._requested = False
        self._descriptor = -1
        self._listeners: list[Callable[[], None]] = []
        # Reentrant: a signal handler may cancel while this very thread is in here.
        self._guard = threading.RLock()

    def cancel(self) -> None:
        with self._guard:
            self._requested = True
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)
            listeners = [*self._listeners]
        for listener in listeners:
            listener()

    def fileno(self) -> int:
        """Readable once cancelled."""
        with self._guard:
            if self._descriptor < 0:
                self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                if self._requested:  # before, or by a signal this instant
                    os.eventfd_write(self._descriptor, 1)
            return self._descriptor

    @property
    def requested(self) -> bool:
        return self._requested

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the request, perhaps from a signal handler; at once if it was made."""
        with self._guard:
            self._listeners.append(listener)
        if self._requested:
            listener()

    def unlisten(self, listener: Callable[[], None]) -> None:
        with self._guard:
            self._listeners.remove(listener)

    def close(self) -> None:
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


@value
class Capability:
    """Whether this host can enforce one limit, by what, and if not, what would help."""

    limit: str
    enforceable: bool
    mechanism: str
    remedy: str = ""


class Channel(Protocol):
    """A tool kept running, and the lines that go to it and come from it.

    One thread at a time speaks; any may close. Everything that comes is the tool's word, bounded
    in size and otherwise unread. Times are of `time.monotonic`.
    """

    @property
    def over(self) -> str:
        """Why nothing more can be said; empty while something can."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing of the tool is alive any more, so that `close` returns at once."""
        ...

    @property
    def until(self) -> float:
        """When it is ended at the latest."""
        ...

    def enforcement(self, note: str = "") -> tuple[Enforced, ...]:
        """The manifest, as it stands by now; every mechanism followed by `note`."""
        ...

    def redacted(self, content: bytes) -> bytes:
        """`content`, made from what the tool said, without the secrets that it was given."""
        ...

    @property
    def redaction(self) -> Redaction | None:
        """What takes the tool's secrets out of anything it says, before that is kept or shown."""
        ...

    def fileno(self) -> int:
        """Readable when the tool may have said something, for those who wait for many things."""
        ...

    def send(self, message: bytes, deadline: float | None = None) -> bool:
        """Say one line. False: it did not take all of it by then, or it is over."""
        ...

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        """The next line without its end, or ``None``: nothing came by then, or it is over.

        Also ``None`` once the descriptor `stop` is readable. Whoever waits here keeps it from being
        idle.
        """
        ...

    def close(self) -> Capture:
        """End it, wait until nothing of it is left, and tell how it was. May be asked again."""
        ...


class Runner(Protocol):
    """Where a plan is carried out."""

    @property
    def kind(self) -> RunnerKind: ...

    def capabilities(self) -> tuple[Capability, ...]:
        """What this host can enforce, found by trying, not by guessing from versions."""
        ...

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        """How each limit of `policy` would be enforced; raises `Refused` if one cannot be."""
        ...

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        """Whether the writable folder `grant` can be under an overlay whose upper layer is in the
        layers of `plan`. Found by trying, once for each pair of file systems."""
        ...

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        """Carry out `plan` once, emitting the four lifecycle events in order.

        What can be refused is refused before `permit` is asked, so that no start is on record that
        never had a chance; a runner prepares as much as it can before that, because asking takes
        the time of a durable write.
        """
        ...

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        """Start `plan` once and keep it, to be spoken with over its stdin and stdout.

        It ends by itself, when the channel is closed, at the plan's own deadline, or when nobody
        spoke for `idle_s`. Its events are those of `run`; the last ones come when it has ended.
        """
        ...

    def rest(self) -> None:
        """What was asked for is on record: do now what could wait until then, such as preparing
        for the next. Returns soon; any thread may call it at any time, and nothing depends on it.
        """
        ...

    def close(self) -> None: ...


def require_proof(plan: Plan) -> None:
    """No plan runs that was not validated as it stands. The first thing every runner does."""
    proof = plan.proof
    if proof.call_sha256 != plan.call_sha256 or proof.policy_sha256 != plan.policy.sha256:
        raise Refused(
            "PROOF_INVALID",
            "The plan differs from what was validated.",
            remedy="Plans are made by the pipeline; a runner takes no other.",
        )
