"""The next action of a run: a pure function of its contract, its plan and its ledger.

A worker that has died changes nothing about the answer, so any worker can go on. Nothing here reads
the clock, the environment or randomness.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from actum.runs.contract.fields import Config
from actum.runs.model import Step, StepKind, StepStatus
from actum.runs.run_plan import Plan
from actum.runs.run_status import RunStatus
from actum.value import value
from actum.work.dag import needs_of_all
from actum.work.model import WorkItem

#: An item that was interrupted or met a conflict so often is not tried again.
MOST_ATTEMPTS = 5
#: The code of an item whose paths another item of its level changed: it runs again, alone.
CONFLICT = "WORK_CONFLICT"
#: What heavy validation is about, where light validation is about one item.
WHOLE = "run"
ITEMS_FAILED = "ITEMS_NOT_SUCCEEDED"
LIGHT_FAILED = "LIGHT_VALIDATION_FAILED"
HEAVY_FAILED = "HEAVY_VALIDATION_FAILED"
NOT_CONVERGING = "NOT_CONVERGING"
INTERRUPTED = "VALIDATION_INTERRUPTED"
PLANNER_TIMEOUT = "PLANNER_TIMEOUT"
PLANNER_FAILED = "PLANNER_FAILED"
PLANNER_INTERRUPTED = "PLANNER_INTERRUPTED"

_CORRECTION = re.compile(r":([ch])([0-9]+)$")
_WORK = (StepKind.ITEM, StepKind.CORRECTION)


class Correction(StrEnum):
    RUNTIME = "c"  #: after a light validation
    HEAVY = "h"


@value
class MakePlan:
    """Let the planner write the items."""

    attempt: int


@value
class PlannedItem:
    item: WorkItem
    attempt: int


@value
class RunLevel:
    """Run these items of one level."""

    number: int
    items: tuple[PlannedItem, ...]


@value
class Validate:
    """Run the light validators after an item, or the heavy ones."""

    kind: StepKind
    item_id: str | None = None


@value
class Correct:
    """Let the corrector fix what a validation found."""

    kind: Correction
    of: str  #: the item whose validation failed; `WHOLE` for a heavy one
    number: int
    attempt: int
    failed: Step  #: the validation


@value
class Finish:
    status: RunStatus
    code: str | None = None
    validation: str | None = None  #: ``passed`` or ``failed``; ``None`` if none ran


Action = MakePlan | RunLevel | Validate | Correct | Finish


def status_of(action: Action) -> RunStatus:
    """The status of a run while it does `action`."""
    match action:
        case Finish(status=status):
            return status
        case Correct(kind=Correction.RUNTIME):
            return RunStatus.CORRECTING
        case Correct():
            return RunStatus.OPTIMIZING
        case Validate(kind=StepKind.HEAVY):
            return RunStatus.VALIDATING
    return RunStatus.RUNNING


def correction_id(of: str, kind: Correction, number: int) -> str:
    return f"{of}:{kind.value}{number}"


def root_of(item_id: str | None) -> str:
    """The item of the file that a correction goes back to; `WHOLE` for heavy corrections."""
    return _CORRECTION.sub("", item_id or WHOLE)


def decide(config: Config, plan: Plan, steps: Sequence[Step], resumed_at: int = 0) -> Action:
    """The next action. Open steps are settled first (`Performer.settle`): only those of items that
    are ready, and wait for their turn, are still open.

    Of the steps before `resumed_at` only successes count: a continued run retries the rest.
    """
    run = _progress(config, plan, steps, resumed_at)
    if plan.planner is not None and not plan.items:
        return _planning(run)
    for number, level in enumerate(plan.levels):
        waiting = tuple(
            PlannedItem(item=item, attempt=run.attempts(item.id) + 1)
            for item in level
            if run.is_due(item)
        )
        if waiting:
            alone = next((each for each in waiting if run.conflicted(each.item.id)), None)
            return RunLevel(number=number, items=waiting if alone is None else (alone,))
        action = _after_changes(run, {item.id for item in level})
        if action is not None:
            return action
    if any(run.end_of(item.id) is not StepStatus.SUCCESS for item in plan.items):
        return Finish(status=RunStatus.FAILED, code=ITEMS_FAILED)
    return _after_changes(run, {WHOLE}) or _at_the_end(run)


@value
class _Progress:
    """Questions about a run, answered by its steps. A graph may have thousands of items, and each
    is asked about, so the steps of an item are found by its id."""

    config: Config
    plan: Plan
    all: tuple[Step, ...]
    resumed_at: int
    steps: tuple[Step, ...]  #: those that count
    work: Mapping[str | None, Sequence[Step]]  #: item -> those of its steps that count
    needs: Mapping[str, tuple[str, ...]]  #: item -> what must have succeeded before
    attempted: Mapping[str | None, int]  #: item -> attempts ever made: each has an id of its own

    def of_item(self, item_id: str) -> Sequence[Step]:
        return self.work.get(item_id, ())

    def end_of(self, item_id: str) -> StepStatus | None:
        found = self.of_item(item_id)
        return found[-1].status if found else None

    def attempts(self, item_id: str) -> int:
        return self.attempted.get(item_id, 0)

    def conflicted(self, item_id: str) -> bool:
        found = self.of_item(item_id)
        return bool(found) and CONFLICT in found[-1].reasons

    def is_due(self, item: WorkItem) -> bool:
        """Whether an item can run and has not ended. One whose dependencies have not succeeded is
        blocked."""
        needs = self.needs[item.id]
        if any(self.end_of(name) is not StepStatus.SUCCESS for name in needs):
            return False
        again = self.end_of(item.id) is StepStatus.INTERRUPTED or self.conflicted(item.id)
        if self.end_of(item.id) is not None and not again:
            return False
        return len(self.of_item(item.id)) < MOST_ATTEMPTS

    @property
    def changes(self) -> list[Step]:
        """Steps that changed the folder."""
        return [
            step
            for step in self.steps
            if step.kind in _WORK
            and step.status is StepStatus.SUCCESS
            and step.after_state != step.base_state
        ]

    def checks(self, kind: StepKind) -> list[Step]:
        """Validations that came to an end."""
        return [
            step
            for step in self.steps
            if step.kind is kind and step.status is not StepStatus.INTERRUPTED
        ]

    def validation(self, kind: StepKind, item_id: str | None) -> Validate | Finish:
        """The validation, unless workers died in it too often."""
        died = [
            step
            for step in self.steps
            if (step.kind, step.item_id, step.status) == (kind, item_id, StepStatus.INTERRUPTED)
        ]
        if len(died) >= MOST_ATTEMPTS:
            return Finish(status=RunStatus.FAILED, code=INTERRUPTED)
        return Validate(kind=kind, item_id=item_id)

    def corrections(self, kind: Correction) -> list[Step]:
        """Counted over the whole run: a continued run gets no more of them."""
        return [
            step
            for step in self.all
            if step.kind is StepKind.CORRECTION and _kind_and_number(step)[0] == kind.value
        ]


def _progress(config: Config, plan: Plan, steps: Sequence[Step], resumed_at: int) -> _Progress:
    good = (StepStatus.SUCCESS, StepStatus.PASSED)
    work: dict[str | None, list[Step]] = {}
    attempted: dict[str | None, int] = {}
    counting = tuple(step for step in steps if step.step_index >= resumed_at or step.status in good)
    for step in steps:
        attempted[step.item_id] = max(step.attempt, attempted.get(step.item_id, 0))
    for step in counting:
        if step.kind in _WORK:
            work.setdefault(step.item_id, []).append(step)
    return _Progress(
        config=config,
        plan=plan,
        all=tuple(steps),
        resumed_at=resumed_at,
        steps=counting,
        work=work,
        needs=needs_of_all(plan.items),
        attempted=attempted,
    )


def _planning(run: _Progress) -> MakePlan | Finish:
    """The planner runs until it has answered once; a continued run lets it try again."""
    made = [step for step in run.all if step.kind is StepKind.PLAN]
    ended = [step for step in made if step.step_index >= run.resumed_at]
    last = ended[-1].status if ended else None
    if last is StepStatus.TIMEOUT:
        return Finish(status=RunStatus.FAILED, code=PLANNER_TIMEOUT)
    if last is not None and last is not StepStatus.INTERRUPTED:
        return Finish(status=RunStatus.FAILED, code=PLANNER_FAILED)
    if len(ended) >= MOST_ATTEMPTS:
        return Finish(status=RunStatus.FAILED, code=PLANNER_INTERRUPTED)
    return MakePlan(attempt=len(made) + 1)


def _after_changes(run: _Progress, roots: set[str]) -> Validate | Correct | Finish | None:
    """Light validation of everything that changed the folder, then the corrections it needs."""
    mode = run.config["lightValidationMode"]
    if mode == "off" or not run.plan.light:
        return None
    changed = [step for step in run.changes if root_of(step.item_id) in roots]
    checks = run.checks(StepKind.LIGHT)
    newest = {check.item_id: check.step_index for check in checks}  # steps come in their order
    for step in sorted(changed, key=lambda step: (root_of(step.item_id), step.step_index)):
        if newest.get(step.item_id, -1) < step.step_index:
            return run.validation(StepKind.LIGHT, step.item_id)
    if mode != "enforce":
        return None
    for root in sorted({root_of(step.item_id) for step in changed}):
        own = [check for check in checks if root_of(check.item_id) == root]
        if own and own[-1].status is StepStatus.FAILED:
            return _correction(run, own, Correction.RUNTIME, of=root, exhausted=LIGHT_FAILED)
    return None


def _at_the_end(run: _Progress) -> Action:
    """Heavy validation, when every item has succeeded."""
    mode = run.config["heavyValidationMode"]
    if mode == "off" or not run.plan.heavy:
        return Finish(status=RunStatus.COMPLETE)
    newest = max((step.step_index for step in run.changes), default=-1)
    checks = run.checks(StepKind.HEAVY)
    if not checks or checks[-1].step_index < newest:
        return run.validation(StepKind.HEAVY, None)
    if checks[-1].status is StepStatus.PASSED:
        return Finish(status=RunStatus.COMPLETE, validation="passed")
    if mode == "warn":
        return Finish(status=RunStatus.COMPLETE, validation="failed")
    return _correction(run, checks, Correction.HEAVY, of=WHOLE, exhausted=HEAVY_FAILED)


def _correction(
    run: _Progress, checks: Sequence[Step], kind: Correction, *, of: str, exhausted: str
) -> Correct | Finish:
    """The next correction of a failed validation, or the end of the run."""
    validation = "failed" if kind is Correction.HEAVY else None
    over = Finish(status=RunStatus.FAILED, code=exhausted, validation=validation)
    if run.config["correctionConvergenceMode"] == "enforce" and not _converges(checks):
        return Finish(status=RunStatus.FAILED, code=NOT_CONVERGING, validation=validation)
    most = run.config[
        "maxRuntimeCorrectionAttempts"
        if kind is Correction.RUNTIME
        else "maxHeavyCorrectionAttempts"
    ]
    made = run.corrections(kind)
    number, attempt = len({step.item_id for step in made}) + 1, 1
    if made and made[-1].status is StepStatus.INTERRUPTED:
        number, attempt = _kind_and_number(made[-1])[1], made[-1].attempt + 1
    if run.plan.corrector is None or number > int(str(most)) or attempt > MOST_ATTEMPTS:
        return over
    return Correct(kind=kind, of=of, number=number, attempt=attempt, failed=checks[-1])


def _kind_and_number(step: Step) -> tuple[str, int]:
    found = _CORRECTION.search(step.item_id or "")
    return (found[1], int(found[2])) if found else ("", 0)


def _converges(checks: Sequence[Step]) -> bool:
    """Whether the newest failed validation found fewer things, and not the same again."""
    failed = [step for step in checks if step.status is StepStatus.FAILED]
    if len(failed) < 2:
        return True
    before, now = failed[-2], failed[-1]
    if now.signature in {step.signature for step in failed[:-1]}:
        return False
    return (now.blocking or 0) < (before.blocking or 0)
