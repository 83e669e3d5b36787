"""Plans: several actions, one after the other, each through the whole pipeline.

The pure executor `composite_plan` reads and sorts the plan, in a child. This module runs the
result: every step is an action of its own, with its own gate decision, limits, child and audit
records, under the plan's trace id. No executor calls another.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from actum.contract.canonical import canonical, sha256_json
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.executors.model import ActionRequest, ActionResult
from actum.executors.reasons import Reason
from actum.value import field, value

EXECUTOR_ID = "composite_plan"

#: Keys that a step never passes on: they commonly hold raw conversation.
STRIPPED = frozenset({"prompt", "raw_prompt", "messages", "input", "context", "payload"})

#: (request, seconds left) -> (result, value)
Act = Callable[[ActionRequest, float], tuple[ActionResult, Json]]


@value
class CarriedOut:
    output: Json = None
    status: ActionStatus = ActionStatus.SUCCESS
    reason_codes: tuple[str, ...] = ()


@value(frozen=False, kw_only=False)
class _State:
    value: dict[str, Json]
    steps: list[Json] = field(default_factory=list)
    payload_bytes: int = 0


def carry_out(plan: Json, request: ActionRequest, deadline: float, act: Act) -> CarriedOut:
    """Run an ordered plan. The first step that does not succeed ends it."""
    state = _State(dict(plan["input"]))
    for step in plan["steps"]:
        left = deadline - time.monotonic()
        if left <= 0:
            return _blocked(Reason.EXECUTOR_TIMEOUT)
        payload = {**state.value, **step["payload"]}
        state.payload_bytes += len(canonical(payload))
        if state.payload_bytes > plan["max_total_payload_bytes"]:
            return _blocked(Reason.LIMIT_EXCEEDED)
        result, value = act(
            ActionRequest(
                action=step["action"],
                payload=payload,
                trace_id=request.trace_id,
                ts_utc=request.ts_utc,
            ),
            left,
        )
        if result.status is not ActionStatus.SUCCESS:
            return _stopped(step["name"], result)
        state.steps.append(_summary(step["name"], result))
        _merge(state, step, value)
    return CarriedOut(
        output={
            "plan_digest": sha256_json(plan),
            "steps": state.steps,
            "output": state.value,
        }
    )


def _blocked(reason: Reason) -> CarriedOut:
    return CarriedOut(status=ActionStatus.BLOCKED, reason_codes=(reason.value,))


def _stopped(name: str, result: ActionResult) -> CarriedOut:
    code = f"{Reason.COMPOSITE_STEP_FAILED.value}:{name}"
    return CarriedOut(status=result.status, reason_codes=(code, *result.reason_codes))


def _summary(name: str, result: ActionResult) -> Json:
    return {
        "name": name,
        "action": result.action,
        "executor_id": result.executor_id,
        "executor_version": result.executor_version,
        "input_digest": result.input_digest,
        "output_digest": result.output_digest,
    }


def _merge(state: _State, step: Json, value: Json) -> None:
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if key not in STRIPPED}
    match step["merge"]:
        case "merge_under":
            state.value[step["under"]] = value
        case "append_results":
            state.value["results"] = [*state.value.get("results", []), value]
        case _:
            state.value = value if isinstance(value, dict) else {"value": value}
