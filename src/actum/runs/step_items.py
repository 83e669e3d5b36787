"""The work items that a run makes itself, for its planner and its corrector, and caps of steps.

Part of the decisions that a version of the contract covers: a pure function of contract, plan and
recorded steps, like `decide`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from actum.contract.model import Json
from actum.runs.contract.fields import Config
from actum.runs.decide import WHOLE, Correct, correction_id, root_of
from actum.runs.model import Step, StepKind
from actum.runs.run_plan import Plan, Planner
from actum.value import replace
from actum.work.model import Constraints, WorkItem
from actum.work.step_caps import StepCaps

#: Characters of findings in a correction's description, which has at most 65,536.
MOST_DESCRIBED = 64_000
#: The id of the planner's item. Its changes are dropped, so its caps only bound the effort.
PLANNER_ITEM = "plan"
PLANNER_CAP = 1_000


def planner_item(planner: Planner, config: Config) -> WorkItem:
    return WorkItem(
        id=PLANNER_ITEM,
        agent_id=planner.agent,
        description=planner.goal,
        constraints=Constraints(
            max_files=PLANNER_CAP,
            max_tool_ops=PLANNER_CAP,
            max_delta_size=PLANNER_CAP,
            timeout_ms=int(str(config["plannerTimeoutMs"])),
        ),
    )


def correction_item(action: Correct, plan: Plan, config: Config) -> WorkItem:
    """An item of the corrector, whose description holds what a validation found."""
    found: Any = json.loads(action.failed.document or "{}")
    return WorkItem(
        id=correction_id(action.of, action.kind, action.number),
        agent_id=str(plan.corrector),
        description=json.dumps(
            {
                "correct": action.of,
                "number": action.number,
                "validation": action.failed.kind.value,
                "findings": _fitting(found.get("findings", [])),
            }
        ),
        constraints=Constraints(max_files=int(str(config["maxFilesPerStep"]))),
    )


def caps_of(config: Config) -> StepCaps:
    return StepCaps(
        max_files=int(str(config["maxFilesPerStep"])),
        max_total_diff_bytes=int(str(config["maxTotalDiffBytes"])),
        max_file_bytes=int(str(config["maxFileBytes"])),
        allow_env_mutation=bool(config["allowEnvMutation"]),
    )


def correction_caps(config: Config, of: str, plan: Plan, steps: Sequence[Step]) -> StepCaps:
    """Those of every step, and under `enforce` what a correction may change."""
    caps = caps_of(config)
    if config["correctionPolicyMode"] != "enforce":
        return caps
    return replace(caps, must_change=True, paths=_paths(of, plan, steps))


def _fitting(findings: Sequence[Json]) -> list[Json]:
    """The first findings, as many as the description of a work item has room for."""
    fitting: list[Json] = []
    left = MOST_DESCRIBED
    for each in findings:
        left -= len(json.dumps(each)) + 2
        if left < 0:
            break
        fitting.append(each)
    return fitting


def _paths(of: str, plan: Plan, steps: Sequence[Step]) -> tuple[str, ...]:
    """The files that a correction may change: those of the steps it corrects, and the declared
    outputs of their items."""
    corrected = [
        step
        for step in steps
        if step.kind in (StepKind.ITEM, StepKind.CORRECTION)
        and (of == WHOLE or root_of(step.item_id) == of)
    ]
    # A step whose process died before it began has no document.
    found = {
        path for step in corrected for path in json.loads(step.document or '{"files": []}')["files"]
    }
    declared = {
        path.lstrip("/")
        for item in plan.items
        if of in (WHOLE, item.id)
        for path in item.output_files
    }
    return tuple(sorted(found | declared))
