"""The next action, for ledgers that are rare in practice."""

from __future__ import annotations

from typing import Any

from actum.runs.contract.fields import DEFAULTS
from actum.runs.decide import Finish, RunLevel, Validate, decide
from actum.runs.model import Step, StepKind, StepState, StepStatus
from actum.runs.run_plan import Plan, Validator
from actum.runs.run_status import RunStatus
from actum.work.model import WorkItem

LINT = Validator(id="lint", request={"tool": "shell"})
PLAN = Plan(items=(WorkItem(id="a", agent_id="agent-1", description="x"),), light=(LINT,))


def step(index: int, kind: StepKind, status: StepStatus, **more: Any) -> Step:
    return Step(
        run_id="r",
        step_index=index,
        kind=kind,
        revision=1,
        epoch=1,
        fence=1,
        worker="w",
        state=StepState.ENDED,
        status=status,
        **{"item_id": "a", "attempt": 1, **more},
    )


def test_an_item_that_is_interrupted_for_ever_is_given_up() -> None:
    steps = [
        step(number, StepKind.ITEM, StepStatus.INTERRUPTED, attempt=number + 1)
        for number in range(5)
    ]
    again = decide(DEFAULTS, PLAN, steps[:4])
    assert isinstance(again, RunLevel)
    assert again.items[0].attempt == 5
    assert decide(DEFAULTS, PLAN, steps) == Finish(
        status=RunStatus.FAILED, code="ITEMS_NOT_SUCCEEDED"
    )
    # A person who continues the run asks for more attempts.
    assert isinstance(decide(DEFAULTS, PLAN, steps, resumed_at=5), RunLevel)


def test_a_validation_in_which_workers_die_is_given_up() -> None:
    done = step(0, StepKind.ITEM, StepStatus.SUCCESS, base_state="x", after_state="y")
    died = [step(number, StepKind.LIGHT, StepStatus.INTERRUPTED) for number in range(1, 6)]
    assert decide(DEFAULTS, PLAN, [done, *died[:4]]) == Validate(kind=StepKind.LIGHT, item_id="a")
    assert decide(DEFAULTS, PLAN, [done, *died]) == Finish(
        status=RunStatus.FAILED, code="VALIDATION_INTERRUPTED"
    )


def test_an_item_that_changed_nothing_is_not_validated() -> None:
    same = step(0, StepKind.ITEM, StepStatus.SUCCESS, base_state="x", after_state="x")
    assert decide(DEFAULTS, PLAN, [same]) == Finish(status=RunStatus.COMPLETE)
