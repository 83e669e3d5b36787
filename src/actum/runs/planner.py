"""Lets a planner write the items of a run, and records its answer before the first item runs."""

from __future__ import annotations

import json
from typing import Any

from actum.errors import ContractInvalid, Refused
from actum.evidence.owner import current_owner
from actum.evidence.records.trace import rfc3339
from actum.runs.contract.fields import Config
from actum.runs.decide import MakePlan
from actum.runs.model import Run, Step, StepKind, StepState, StepStatus
from actum.runs.perform import Performer
from actum.runs.plan_seal import seal_plan
from actum.runs.run_plan import Plan, read_planned
from actum.runs.step_items import planner_item
from actum.work.item_process import Stop
from actum.work.model import Status
from actum.work.plan_item import Planned
from actum.work.work_items import WorkLost


def make_plan(
    performer: Performer, run: Run, action: MakePlan, plan: Plan, config: Config, stop: Stop
) -> Run:
    """One attempt at planning. Returns the run, with its plan if the planner answered."""
    assert plan.planner is not None  # noqa: S101 -- decided by `decide`
    step = Step(
        run_id=run.run_id,
        step_index=len(performer.ledger.steps(run.run_id)),
        kind=StepKind.PLAN,
        item_id=None,
        attempt=action.attempt,
        revision=run.revision,
        epoch=run.epoch,
        fence=run.fence,
        worker=current_owner(),
        state=StepState.STARTED,
        started_at=rfc3339(performer.clock()),
    )
    performer.ledger.start_step(run, step)
    performer.on_event({"at": "planning", "run": run.run_id, "agent": plan.planner.agent})
    try:
        planned = performer.work_items.plan(planner_item(plan.planner, config), stop=stop)
    except WorkLost as lost:
        return _ended(performer, run, step, StepStatus.INTERRUPTED, str(lost), lost.code)
    except Refused as refusal:
        return _ended(performer, run, step, StepStatus.FAILURE, str(refusal), refusal.code)
    if planned.status is not Status.SUCCESS:
        status = StepStatus(planned.status.value)
        return _ended(performer, run, step, status, planned.reason, planned=planned)
    try:
        whole = read_planned(planned.text, plan)
        for agent_id in sorted({item.agent_id for item in whole.items}):
            performer.work_items.agent(agent_id)
    except (ContractInvalid, Refused) as error:
        return _ended(
            performer, run, step, StepStatus.FAILURE, str(error), error.code, planned=planned
        )
    return _frozen(performer, run, step, whole.text(), planned)


def _frozen(performer: Performer, run: Run, step: Step, text: str, planned: Planned) -> Run:
    """Record the plan and the end of the step in one write."""
    seal = seal_plan(run, text, performer.work_items.signer)
    document = {"reason": None, "executions": list(planned.calls), "seal": seal}
    changed = performer.ledger.end_plan(run, step.step_index, text, json.dumps(document))
    performer.on_event({"at": "planned", "run": run.run_id, "status": "success"})
    return changed


def _ended(
    performer: Performer,
    run: Run,
    step: Step,
    status: StepStatus,
    reason: str | None,
    *codes: str,
    planned: Planned | None = None,
) -> Run:
    calls: list[Any] = [] if planned is None else list(planned.calls)
    document = json.dumps({"reason": reason, "executions": calls})
    performer.ledger.end_step(run, step.step_index, status, codes=codes, document=document)
    performer.on_event({"at": "planned", "run": run.run_id, "status": status.value})
    return run
