"""Rehearses a work file on a copy of the project: the outcome that each item would have.

It asks the same `decide` as a run and keeps its steps in memory, so a rehearsal goes through the
levels, the conflicts and the blocked items in the same way. It writes no record, and it neither
runs validators nor corrections.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem, Refused
from actum.runs.contract.fields import Config
from actum.runs.decide import CONFLICT, PlannedItem, RunLevel, decide
from actum.runs.model import Step, StepKind, StepState, StepStatus
from actum.runs.run_plan import Plan
from actum.runs.step_items import caps_of
from actum.runs.work_done import blocked_items
from actum.value import replace, value
from actum.work.execute_item import is_conflict
from actum.work.item_process import Stop
from actum.work.level import LevelItem
from actum.work.model import Rehearsed
from actum.work.step_caps import StepCaps
from actum.work.work_items import WorkItems


@value
class Rehearsal:
    """The outcome that a work file would have."""

    results: Mapping[str, Rehearsed]
    blocked: Mapping[str, tuple[str, ...]]
    again: tuple[str, ...]

    def document(self) -> dict[str, Json]:
        return {
            "dry_run": True,
            "items": {name: result.document() for name, result in self.results.items()},
            "blocked": {name: list(needs) for name, needs in self.blocked.items()},
            "again": list(self.again),
        }


def rehearse(
    plan: Plan, config: Config, work_items: WorkItems, at_once: int, stop: Stop | None = None
) -> Rehearsal:
    """Rehearse every item that would run, under the caps of the contract `config`; until `stop`.

    Raises `ContractInvalid` for a file whose items a planner has still to write.
    """
    if plan.planner is not None:
        message = "a planner writes the items when the run starts: there is nothing to rehearse."
        raise ContractInvalid((Problem(field="run.planner", message=message),))
    without = replace(plan, light=(), heavy=())
    steps: list[Step] = []
    results: dict[str, Rehearsed] = {}
    stop = stop or Stop()
    with work_items.copied() as base:
        while isinstance(action := decide(config, without, steps), RunLevel):
            found = _side_by_side(action, caps_of(config), base, work_items, at_once, stop)
            results |= found
            if stop.stopped:
                break
            for planned in action.items:
                steps.append(_step(len(steps), planned, found[planned.item.id]))
    order = [item.id for level in plan.levels for item in level]
    return Rehearsal(
        results={name: results[name] for name in order if name in results},
        blocked=blocked_items(plan, steps),
        again=tuple(dict.fromkeys(str(step.item_id) for step in steps if CONFLICT in step.reasons)),
    )


def _side_by_side(
    action: RunLevel,
    caps: StepCaps,
    base: Path,
    work_items: WorkItems,
    at_once: int,
    stop: Stop,
) -> dict[str, Rehearsed]:
    found: dict[str, Rehearsed] = {}

    def refuse(refusal: Refused) -> None:
        raise refusal

    work_items.rehearse_level(
        [
            LevelItem(
                item=planned.item,
                run_id="",
                caps=caps,
                end=partial(found.__setitem__, planned.item.id),
                refuse=refuse,
            )
            for planned in action.items
        ],
        base,
        at_once=at_once,
        stop=stop,
    )
    return found


def _step(number: int, planned: PlannedItem, result: Rehearsed) -> Step:
    codes = [CONFLICT] if is_conflict(result.reason) else []
    return Step(
        run_id="",
        step_index=number,
        kind=StepKind.ITEM,
        item_id=planned.item.id,
        attempt=planned.attempt,
        revision=0,
        epoch=0,
        fence=0,
        worker="",
        state=StepState.ENDED,
        status=StepStatus(result.status.value),
        codes=json.dumps(codes),
    )
