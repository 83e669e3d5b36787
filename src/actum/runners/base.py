"""The port that every runner implements. Only runners start tools.

A runner carries out a `Plan` exactly once. It selects nothing, validates no argument, widens no
permission and never retries. It refuses a limit that it cannot enforce on this host before the
start.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from actum.capture.model import Capture, Connection, Enforced
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.limits import IDLE_S, MESSAGE_BYTES
from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.evidence.records.trace import Emit
from actum.value import value

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction

#: Called with (``"stdout"`` or ``"stderr"``, bytes) while the tool runs, for a live terminal.
OnOutput = Callable[[str, bytes], None]

#: Called once, when everything is prepared and before the tool is started; returns when the
#: start is recorded. If it raises, nothing was started and nothing may be left behind.
Permit = Callable[[], None]


class Cancel:
    """A caller's way to end an attempt from another thread or a signal handler.

    It opens a descriptor only for a poll: a thousand waiting requests need none.
    """

    def __init__(self) -> None:
        self._requested = False
        self._descriptor = -1
        self._listeners: list[Callable[[], None]] = []
        # Reentrant: a signal handler may cancel while the same thread holds it.
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
                if self._requested:  # before, or by a signal just now
                    os.eventfd_write(self._descriptor, 1)
            return self._descriptor

    @property
    def requested(self) -> bool:
        return self._requested

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on a cancel, perhaps from a signal handler; at once if cancelled."""
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
    """Whether this host can enforce one limit, the mechanism, and otherwise the remedy."""

    limit: str
    enforceable: bool
    mechanism: str
    remedy: str = ""


class Channel(Protocol):
    """A tool that stays running, with lines to its stdin and from its stdout.

    One thread at a time sends or receives; any may close. Received lines are untrusted, bounded in
    size and otherwise not interpreted. Times are of `time.monotonic`.
    """

    @property
    def over(self) -> str:
        """Why the channel is closed; empty while it is open."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no process of the tool is left, so that `close` returns at once."""
        ...

    @property
    def until(self) -> float:
        """The deadline of the tool."""
        ...

    def enforcement(self, note: str = "") -> tuple[Enforced, ...]:
        """The manifest so far; `note` is appended to every mechanism."""
        ...

    def refused(self) -> tuple[Connection, ...]:
        """The connections and names that were refused so far, in the order of their time."""
        ...

    def redacted(self, content: bytes) -> bytes:
        """`content`, which comes from the tool, without the tool's secrets."""
        ...

    @property
    def redaction(self) -> Redaction | None:
        """Removes the tool's secrets from its output before it is stored or shown."""
        ...

    def fileno(self) -> int:
        """Readable when there may be output, for callers that poll several descriptors."""
        ...

    def send(self, message: bytes, deadline: float | None = None) -> bool:
        """Send one line. False: the tool did not read all of it in time, or it is closed."""
        ...

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        """The next line without its newline, or ``None``: none came in time, or it is closed.

        Also ``None`` once the descriptor `stop` is readable. The tool is not idle while a caller
        waits here.
        """
        ...

    def close(self) -> Capture:
        """End the tool, wait until no process is left, and return the capture. Idempotent."""
        ...


class Runner(Protocol):
    """Carries out plans."""

    @property
    def kind(self) -> RunnerKind: ...

    def capabilities(self) -> tuple[Capability, ...]:
        """What this host can enforce, found by trying, not from version numbers."""
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

        Every refusal comes before `permit`, so that no start is recorded that could not happen. A
        runner prepares as much as it can before `permit`, which takes the time of a durable write.
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
        """Start `plan` once, with a channel to its stdin and stdout.

        It ends by itself, when the channel is closed, at the plan's own deadline, or without a
        message for `idle_s`. Its events are those of `run`; the last ones come when it has ended.
        """
        ...

    def rest(self) -> None:
        """The execution is recorded: do the work that could wait, such as preparing for the next
        one. Returns soon; any thread may call it at any time, and nothing depends on it.
        """
        ...

    def close(self) -> None: ...


def require_proof(plan: Plan) -> None:
    """Refuse a plan that differs from the validated one. The first step of every runner."""
    proof = plan.proof
    if (
        proof.call_sha256 != plan.call_sha256
        or proof.policy_sha256 != plan.policy.sha256
        or proof.plan_sha256 != plan.bound_sha256
    ):
        raise Refused(
            "PROOF_INVALID",
            "The plan differs from the one that was validated.",
            remedy="Only the pipeline makes plans; a runner accepts no other.",
        )
