"""A runner that starts nothing: it returns given captures.

It keeps every promise of the port that needs no process: it demands the proof, emits the four
events in order and leaves the plan unchanged. It enforces nothing, says so in its manifest, and
so fails the conformance suite by design.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable

from actum.capture.model import Capture, Closed, Connection, Ending, Enforced, Exited, Stream
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.limits import IDLE_S, MESSAGE_BYTES
from actum.contract.model import RunnerKind
from actum.evidence.records.trace import Emit, EventType
from actum.runners.base import Cancel, Capability, OnOutput, Permit, require_proof
from actum.runners.lifecycle import Lifecycle, trace_outcome

#: The capture to return: fixed, or computed from the plan. May raise a refusal or a fault.
Answer = Capture | Callable[[Plan], Capture]
#: The answer of a tool with a session to one line.
Reply = Callable[[bytes], Iterable[bytes]]


def captured(stdout: bytes = b"", stderr: bytes = b"", *, ending: Ending | None = None) -> Capture:
    """A capture with these streams; exit code 0 unless `ending` is given."""
    return Capture(
        ending=Exited(0) if ending is None else ending,
        stdout=_stream(stdout),
        stderr=_stream(stderr),
        duration_ms=0,
    )


def _stream(content: bytes) -> Stream:
    return Stream(
        kept=content, total_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


class FakeRunner:
    """`Runtime(settings, runners={RunnerKind.LOCAL: FakeRunner(captured(b"hi"))})`."""

    def __init__(
        self, answer: Answer, kind: RunnerKind = RunnerKind.LOCAL, *, reply: Reply | None = None
    ) -> None:
        self._answer = answer
        self._reply = reply
        self._kind = kind
        self.plans: list[Plan] = []  #: every plan, in order
        self.closed = False

    @property
    def kind(self) -> RunnerKind:
        return self._kind

    def capabilities(self) -> tuple[Capability, ...]:
        return ()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        """Nothing runs, so nothing is enforced; the result says so."""
        limits = {"timeout_ms": policy.limits.timeout_ms, "memory_mb": policy.limits.memory_mb}
        return tuple(
            Enforced(limit=limit, requested=str(value), mechanism="none: a fake", enforced=False)
            for limit, value in limits.items()
        )

    def takes_overlay(self, plan: Plan, grant: str) -> bool:  # noqa: ARG002 -- part of the port
        """Nothing runs, so nothing is mounted."""
        return True

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,  # noqa: ARG002 -- part of the port; there is nothing to end
        permit: Permit | None = None,
    ) -> Capture:
        require_proof(plan)
        if permit is not None:
            permit()
        self.plans.append(plan)
        lifecycle = Lifecycle(plan, self._kind, emit)
        lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": plan.trace.attempt})
        try:
            capture = self._answer if isinstance(self._answer, Capture) else self._answer(plan)
        except BaseException:
            lifecycle.abort()
            raise
        lifecycle.reached(EventType.TOOL_RUN_RESOURCE_APPLIED, {"limits": []})
        for name, stream in (("stdout", capture.stdout), ("stderr", capture.stderr)):
            if on_output is not None and stream.kept:
                on_output(name, stream.kept)
        lifecycle.reached(EventType.TOOL_RUN_OUTPUT_CAPTURED, {"files": len(capture.collected)})
        ending = type(capture.ending).__name__
        lifecycle.reached(EventType.TOOL_RUN_END, {"ending": ending}, trace_outcome(capture.ending))
        return capture

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,  # noqa: ARG002 -- part of the port; there is nothing to end
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,  # noqa: ARG002 -- nothing waits
        message_bytes: int = MESSAGE_BYTES,  # noqa: ARG002 -- its answers are given
    ) -> FakeChannel:
        require_proof(plan)
        self.plans.append(plan)
        if permit is not None:
            permit()
        return FakeChannel(self._reply or (lambda _line: ()), Lifecycle(plan, self._kind, emit))

    def rest(self) -> None:
        """Nothing is deferred."""

    def close(self) -> None:
        self.closed = True


class FakeChannel:
    """A session without a tool: `reply` gives the answer to each line."""

    def __init__(self, reply: Reply, lifecycle: Lifecycle) -> None:
        self._reply = reply
        self._lifecycle = lifecycle
        self._coming: deque[bytes] = deque()
        self._said: list[bytes] = []
        self._capture: Capture | None = None
        lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": 1})
        lifecycle.reached(EventType.TOOL_RUN_RESOURCE_APPLIED, {"limits": []})

    @property
    def over(self) -> str:
        return "" if self._capture is None else "the channel is closed"

    @property
    def ended(self) -> bool:
        return self._capture is not None

    @property
    def until(self) -> float:
        return math.inf

    def enforcement(self, note: str = "") -> tuple[Enforced, ...]:  # noqa: ARG002
        return ()

    def refused(self) -> tuple[Connection, ...]:
        return ()

    def redacted(self, content: bytes) -> bytes:
        return content

    @property
    def redaction(self) -> None:
        return None

    def fileno(self) -> int:
        raise ValueError("a fake has no descriptor; use `receive`")

    def send(self, message: bytes, deadline: float | None = None) -> bool:  # noqa: ARG002
        if self._capture is None:
            self._coming.extend(self._reply(message))
        return self._capture is None

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:  # noqa: ARG002 -- no wait
        if self._capture is not None or not self._coming:
            return None
        line = self._coming.popleft()
        self._said.append(line)
        return line

    def close(self) -> Capture:
        if self._capture is None:
            said = b"".join(line + b"\n" for line in self._said)
            self._capture = captured(said, ending=Closed(0))
            self._lifecycle.reached(EventType.TOOL_RUN_OUTPUT_CAPTURED, {"files": 0})
            self._lifecycle.reached(
                EventType.TOOL_RUN_END,
                {"ending": Closed.__name__},
                trace_outcome(self._capture.ending),
            )
        return self._capture
