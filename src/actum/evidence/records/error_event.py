"""Error events: what failed, in which attempt, through which adapter and in which phase.

Every attempt that does not succeed, and every refusal, has one in the trace. The evidence record
lists the same errors. An event holds identifiers and codes, never a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from actum.contract.model import Json
from actum.evidence.records.facts import Stage
from actum.evidence.records.trace import EventType, Recorded


class Phase(StrEnum):
    """The part of an execution in which an error occurred, in the order of the pipeline."""

    GATE = "gate"
    REGISTRY = "registry"
    VALIDATION = "validation"
    POLICY = "policy"
    WRITE_AHEAD = "write_ahead"
    RUNNER = "runner"
    OUTPUTS = "outputs"  #: the tool has ended, and its outputs are not the expected ones


PHASES = {stage: Phase(stage.name.lower()) for stage in Stage}


def errors_in(events: Iterable[Recorded]) -> list[Json]:
    """The errors of an execution, in the form of its evidence record."""
    return [
        error_document(
            tool_id=kept.event.tool_id,
            adapter_id=kept.event.data["adapter_id"],
            attempt=kept.event.attempt,
            phase=kept.event.data["phase"],
            code=kept.event.data["code"],
        )
        for kept in events
        if kept.event.event_type is EventType.ERROR
    ]


def error_document(
    *, tool_id: str, adapter_id: str | None, attempt: int, phase: str, code: str
) -> dict[str, Json]:
    return {
        "tool_id": tool_id,
        "adapter_id": adapter_id,
        "attempt": attempt,
        "phase": phase,
        "code": code,
    }
