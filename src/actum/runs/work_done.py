"""The outcome of the work items of a run: a result for each that ran, a reason for each that did
not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actum.contract.model import Json
from actum.runs.decide import CONFLICT
from actum.runs.model import Run, Step, StepKind, StepState, StepStatus
from actum.runs.run_plan import Plan
from actum.runs.run_status import RunStatus
from actum.value import value
from actum.work.dag import needs_of_all
from actum.work.history import WorkHistory
from actum.work.model import RunResult

_WORK = (StepKind.ITEM, StepKind.CORRECTION)
#: Ends after which an item is not tried again in the same run.
_UNSUCCESSFUL = (StepStatus.FAILURE, StepStatus.DENIED, StepStatus.TIMEOUT)


@value
class WorkDone:
    """What became of a work file."""

    run_id: str
    status: RunStatus
    code: str | None  #: why the run did not complete
    levels: tuple[tuple[str, ...], ...]
    results: Mapping[str, RunResult]  #: also of corrections
    unstarted: Mapping[str, str]  #: item -> why it was refused; it has no receipt
    blocked: Mapping[str, tuple[str, ...]]  #: item -> items that it needs and that did not succeed
    again: tuple[str, ...] = ()  #: run a second time, after a conflict

    @property
    def ok(self) -> bool:
        return self.status is RunStatus.COMPLETE

    @property
    def cancelled(self) -> bool:
        return self.status is RunStatus.CANCELLED

    @property
    def ended(self) -> bool:
        return self.status in (RunStatus.COMPLETE, RunStatus.FAILED, RunStatus.CANCELLED)

    def document(self) -> dict[str, Json]:
        return {
            "ok": self.ok,
            "run_id": self.run_id,
            "status": self.status.value,
            "error": self.code,
            "levels": [list(level) for level in self.levels],
            "results": {name: result.document() for name, result in self.results.items()},
            "refused": dict(self.unstarted),
            "blocked": {name: list(needs) for name, needs in self.blocked.items()},
            "again": list(self.again),
            **({"cancelled": True} if self.cancelled else {}),
        }


def work_done(run: Run, plan: Plan, steps: Sequence[Step], history: WorkHistory) -> WorkDone:
    """Of an ended run; the newest attempt at an item counts."""
    last = {str(step.item_id): step for step in steps if step.kind in _WORK}
    results: dict[str, RunResult] = {}
    unstarted: dict[str, str] = {}
    for name, step in last.items():
        kept = None if step.work_run_id is None else history.find(step.work_run_id)
        if kept is not None and kept.result is not None:
            results[name] = kept.result
        elif step.state is not StepState.STARTED:
            unstarted[name] = ", ".join(step.reasons)
    order = [item.id for level in plan.levels for item in level]
    planned = frozenset(order)
    order += [name for name in last if name not in planned]  # corrections
    met_conflict = {str(step.item_id) for step in steps if CONFLICT in step.reasons}
    return WorkDone(
        run_id=run.run_id,
        status=run.status,
        code=run.error_code,
        levels=tuple(tuple(item.id for item in level) for level in plan.levels),
        results={name: results[name] for name in order if name in results},
        unstarted={name: unstarted[name] for name in order if name in unstarted},
        blocked=blocked_items(plan, steps),
        again=tuple(name for name in order if name in met_conflict),
    )


def blocked_items(plan: Plan, steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Items that were not run because an item that they need failed or is blocked itself, with
    everything that they still need."""
    ends = {str(step.item_id): step.status for step in steps if step.kind in _WORK}
    needed = needs_of_all(plan.items)
    blocked: dict[str, tuple[str, ...]] = {}
    for level in plan.levels:
        for item in level:
            if item.id in ends:
                continue
            missing = [name for name in needed[item.id] if ends.get(name) is not StepStatus.SUCCESS]
            if any(ends.get(name) in _UNSUCCESSFUL or name in blocked for name in missing):
                blocked[item.id] = tuple(missing)
    return blocked
