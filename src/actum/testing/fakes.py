"""A runner that starts nothing: it answers with captures given to it.

It keeps every promise of the port that can be kept without running anything: the proof is
demanded, the four events come in order, the plan is handed back unchanged. It enforces nothing,
says so in its manifest, and so fails the conformance suite by design.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from actum.capture.model import Capture, Ending, Enforced, Exited, Stream
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.model import RunnerKind
from actum.evidence.trace import Emit, EventType
from actum.runners.base import Cancel, Capability, OnOutput, Permit, require_proof
from actum.runners.lifecycle import Lifecycle, trace_outcome

#: What to answer: always the same, or worked out from the plan. May raise a refusal or a fault.
Answer = Capture | Callable[[Plan], Capture]


def captured(stdout: bytes = b"", stderr: bytes = b"", *, ending: Ending | None = None) -> Capture:
    """A capture with these streams; it exited with 0 unless told otherwise."""
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

    def __init__(self, answer: Answer, kind: RunnerKind = RunnerKind.LOCAL) -> None:
        self._answer = answer
        self._kind = kind
        self.plans: list[Plan] = []  #: every plan it was given, in order
        self.closed = False

    @property
    def kind(self) -> RunnerKind:
        return self._kind

    def capabilities(self) -> tuple[Capability, ...]:
        return ()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        """Nothing runs, so nothing is held; the result says so."""
        limits = {"timeout_ms": policy.limits.timeout_ms, "memory_mb": policy.limits.memory_mb}
        return tuple(
            Enforced(limit=limit, requested=str(value), mechanism="none: a fake", enforced=False)
            for limit, value in limits.items()
        )

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

    def close(self) -> None:
        self.closed = True
