"""The signed plan of a planner. A planner's answer cannot be made again from the sealed work file,
so the worker that received it signs its digest with the id of the run. A worker that continues the
run carries out only a plan with such a signature."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.canonical import canonical, sha256_bytes
from actum.contract.model import Json
from actum.errors import Refused, VerificationFailed
from actum.runs.contract.check import MISMATCH
from actum.runs.model import Run, Step, StepKind, StepStatus
from actum.runs.run_plan import Plan, read_plan, stored_items
from actum.store import dsse
from actum.store.keys import PublicKey, Signer
from actum.value import replace

PAYLOAD_TYPE = "application/vnd.actum.run-plan+json"


def seal_plan(run: Run, plan: str, signer: Signer) -> str:
    return dsse.sign_encoded(canonical(_statement(run, plan)), PAYLOAD_TYPE, signer).decode()


def plan_of(run: Run, steps: Sequence[Step], trusted: Mapping[str, PublicKey]) -> Plan:
    """The plan of a run: from the sealed work file each time, or as its planner wrote it; without
    items, if the planner has not answered yet. Raises `Refused` for a plan without its seal."""
    plan = read_plan(run.source)
    step = planned_step(steps)
    if plan.planner is None or step is None:
        return plan
    _require(run, step, trusted)
    return stored_items(str(run.plan), plan)


def planned_step(steps: Sequence[Step]) -> Step | None:
    """The step in which the planner of a run answered."""
    made = (StepKind.PLAN, StepStatus.SUCCESS)
    return next((step for step in steps if (step.kind, step.status) == made), None)


def resealed(step: Step, run: Run, signer: Signer) -> Step:
    """The step of a run's planner, taken over by a fork of that run."""
    document: dict[str, Any] = json.loads(step.document or "{}")
    document["seal"] = seal_plan(run, str(run.plan), signer)
    return replace(step, document=json.dumps(document))


def _statement(run: Run, plan: str) -> dict[str, Json]:
    return {
        "run_id": run.run_id,
        "source_sha256": sha256_bytes(run.source.encode("utf-8", "surrogatepass")),
        "plan_sha256": sha256_bytes(plan.encode("utf-8", "surrogatepass")),
    }


def _require(run: Run, step: Step, trusted: Mapping[str, PublicKey]) -> None:
    try:
        envelope: Any = json.loads(json.loads(step.document or "{}")["seal"])
        payload = dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE)
    except (VerificationFailed, ValueError, KeyError, TypeError, AttributeError):
        payload = b""  # any program may have edited the row
    if run.plan is None or payload != canonical(_statement(run, run.plan)):
        raise Refused(
            MISMATCH,
            f"The stored plan of the run {run.run_id} is not the one that its planner wrote.",
            remedy="Nothing more ran. Submit the work file again.",
        )
