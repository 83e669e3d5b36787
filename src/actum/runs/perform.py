"""Carries out one action of a run and records it: steps before they start, their ends after.

`settle` goes first: it ends the steps that a dead worker left open. A work item that was committed
is adopted with its receipt and never repeated; one whose process died is interrupted and tried
again.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actum.contract.model import Json
from actum.contract.outcome import Outcome
from actum.contract.request import ExecRequest
from actum.errors import Refused
from actum.evidence.owner import current_owner
from actum.evidence.records.trace import rfc3339
from actum.execution.result import Result
from actum.execution.services import Clock
from actum.runners.base import Cancel
from actum.runs.contract.fields import Config
from actum.runs.decide import (
    CONFLICT,
    Correct,
    PlannedItem,
    RunLevel,
    Validate,
)
from actum.runs.model import Run, Step, StepKind, StepState, StepStatus
from actum.runs.run_ledger import RunLedger
from actum.runs.run_plan import Plan, Validator
from actum.runs.step_items import caps_of, correction_caps, correction_item
from actum.runs.validator_findings import Finding, findings_of, signature_of
from actum.value import replace, value
from actum.work.execute_item import is_conflict
from actum.work.held_item import Held
from actum.work.item_process import Stop
from actum.work.level import LevelItem
from actum.work.model import RunResult, Status
from actum.work.step_caps import StepCaps
from actum.work.work_items import WorkItems

#: Receives progress: ``{"at": ..., "run": ..., ...}``.
OnEvent = Callable[[Mapping[str, Any]], None]
#: Ids of steps are derived, so that a later worker finds the work of an earlier one.
_NAMESPACE = uuid.UUID("6f1d5c0a-9a54-5d0c-8a63-3c0f6f0a7d11")
_INTERRUPTED = "STEP_INTERRUPTED"
_NOT_BEGUN = "STEP_NOT_BEGUN"


class _Stopped(Exception):
    """A validator was ended before its verdict."""


@value
class Performer:
    """Everything that the actions of a run use."""

    ledger: RunLedger
    work_items: WorkItems
    execute: Callable[[ExecRequest, Cancel], Result]  #: one execution; its changes are discarded
    clock: Clock
    at_once: int
    on_event: OnEvent = lambda _event: None

    def settle(self, run: Run) -> None:
        """End the open steps of a run whose worker died. A step whose item is held stays open, if
        it was checked by the caps of the contract in force."""
        for step in self.ledger.steps(run.run_id):
            if not step.is_open:
                continue
            if step.work_run_id is None:  # a validation
                self._end(run, step, StepStatus.INTERRUPTED, codes=(_INTERRUPTED,))
                continue
            adopt = step.revision == run.revision
            result = self.work_items.settled(step.work_run_id, adopt=adopt)
            if isinstance(result, Held):
                continue  # `run_level` adopts it
            if result is None:
                self._end(run, step, StepStatus.INTERRUPTED, codes=(_NOT_BEGUN,))
            else:
                self._end_item(run, step, result)

    def run_level(self, run: Run, action: RunLevel, config: Config, stop: Stop) -> None:
        """Run the items of a level side by side."""
        names = [planned.item.id for planned in action.items]
        self.on_event({"at": "level", "run": run.run_id, "level": action.number, "items": names})
        steps = self.ledger.steps(run.run_id)
        held = {step.item_id: step for step in steps if step.is_open}
        caps, index = caps_of(config), len(steps)
        tasks = []
        for planned in action.items:
            adopted = held.get(planned.item.id)
            tasks.append(self._task(run, index, StepKind.ITEM, planned, caps, adopted))
            index += adopted is None
        self.work_items.run_level(tasks, at_once=self.at_once, stop=stop)

    def correct(self, run: Run, action: Correct, plan: Plan, config: Config, stop: Stop) -> None:
        """Let the corrector work on what a validation found."""
        steps = self.ledger.steps(run.run_id)
        item = correction_item(action, plan, config)
        caps = correction_caps(config, action.of, plan, steps)
        planned = PlannedItem(item=item, attempt=action.attempt)
        task = self._task(run, len(steps), StepKind.CORRECTION, planned, caps)
        self.work_items.run_level([task], at_once=1, stop=stop)

    def validate(self, run: Run, action: Validate, plan: Plan, stop: Stop) -> None:
        """Run the validators of a kind and record their verdict; they change nothing. `stop` ends
        them at once; then there is no verdict."""
        step = self._step(run, len(self.ledger.steps(run.run_id)), action.kind, action.item_id, 1)
        self.ledger.start_step(run, step)
        validators = plan.light if action.kind is StepKind.LIGHT else plan.heavy
        try:
            findings, executions = self._found_by(validators, action.kind, stop)
        except _Stopped:
            self._end(run, step, StepStatus.INTERRUPTED, codes=(_INTERRUPTED,))
            return
        except Refused as refusal:
            codes = (refusal.code,)
            self._end(run, step, StepStatus.INTERRUPTED, codes=codes)
            raise
        status = StepStatus.FAILED if findings else StepStatus.PASSED
        listed: list[Json] = [each.document() for each in findings]
        self.ledger.end_step(
            run,
            step.step_index,
            status,
            signature=signature_of(findings),
            blocking=len(findings),
            document=json.dumps({"findings": listed, "executions": executions}),
        )
        self.on_event(
            {
                "at": "validated",
                "run": run.run_id,
                "kind": action.kind.value,
                "item": action.item_id,
                "status": status.value,
            }
        )

    def heavy_verdict(self, plan: Plan) -> bool:
        """Whether the heavy validators pass now; a plan without one does not."""
        findings, executions = self._found_by(plan.heavy, StepKind.HEAVY, Stop())
        return bool(executions) and not findings

    def _found_by(
        self, validators: Sequence[Validator], kind: StepKind, stop: Stop
    ) -> tuple[list[Finding], list[Json]]:
        findings: list[Finding] = []
        executions: list[Json] = []
        for validator in validators:
            request: dict[str, Any] = dict(validator.request)
            request["cwd"] = str(self.work_items.root)
            request["purpose"] = f"{kind.value} validation {validator.id}"
            self.on_event({"at": "validating", "validator": f"{kind.value} {validator.id}"})
            result = self._executed(ExecRequest(**request), stop)
            if result.outcome is Outcome.REJECTED:
                # It did not run, so it found nothing, and no corrector could help.
                why = "; ".join(each.message for each in result.violations)
                raise Refused(
                    result.reason_codes[0],
                    f"The {kind.value} validator {validator.id} was refused: {why}",
                    remedy=f"It did not run (receipt {result.receipt_id}). Remove the cause, then"
                    " `actum runs continue`; for a mistake in the work file, submit it again.",
                )
            executions.append(
                {
                    "id": validator.id,
                    "execution_id": result.execution_id,
                    "receipt_id": result.receipt_id,
                    "outcome": result.outcome.value,
                }
            )
            if result.outcome is not Outcome.SUCCEEDED:
                ended = result.result
                exit_code = None if ended is None else ended.exit_code
                stdout = "" if ended is None else ended.stdout
                findings += findings_of(validator.id, exit_code, stdout)
        return findings, executions

    def _executed(self, request: ExecRequest, stop: Stop) -> Result:
        cancel = Cancel()
        try:
            with stop.calls(cancel.cancel):
                result = self.execute(request, cancel)
        finally:
            cancel.close()
        if cancel.requested:
            raise _Stopped
        return result

    def _task(
        self,
        run: Run,
        index: int,
        kind: StepKind,
        planned: PlannedItem,
        caps: StepCaps,
        adopted: Step | None = None,
    ) -> LevelItem[RunResult]:
        """A work item as a step: recorded before its process starts, and when it has ended.
        `adopted` is the open step of an item that is held."""
        new = self._step(run, index, kind, planned.item.id, planned.attempt)
        derived = uuid.uuid5(_NAMESPACE, f"{run.run_id}/{index}/{planned.attempt}")
        step = adopted or replace(new, work_run_id=str(derived))

        def begin() -> None:
            self.ledger.start_step(run, replace(step, started_at=rfc3339(self.clock())))
            self.on_event(
                {
                    "at": "started",
                    "run": run.run_id,
                    "item": planned.item.id,
                    "agent": planned.item.agent_name or planned.item.agent_id,
                }
            )

        def hear(said: Mapping[str, Any]) -> None:
            self.on_event({**said, "run": run.run_id})
            if said["at"] == "ready":
                # The item waits for this to return: a worker that lost its claim commits nothing.
                self.ledger.require_claim(run)

        def refuse(refusal: Refused) -> None:  # nothing ran: an agent that does not exist
            document = json.dumps({"files": [], "reason": str(refusal)})
            self._end(run, step, StepStatus.FAILURE, codes=(refusal.code,), document=document)
            self._tell_end(run, step, StepStatus.FAILURE, str(refusal))

        return LevelItem(
            item=planned.item,
            run_id=str(step.work_run_id),
            caps=caps,
            held=adopted is not None,
            begin=begin,
            hear=hear,
            end=lambda result: self._end_item(run, step, result),
            refuse=refuse,
        )

    def _end_item(self, run: Run, step: Step, result: RunResult) -> None:
        records, name = self.work_items.records, str(step.work_run_id)
        before, after = records.states_of(name)
        status = StepStatus(result.status.value)
        codes: tuple[str, ...] = ()
        if result.status is Status.FAILURE and records.was_interrupted(name):
            status, codes = StepStatus.INTERRUPTED, (_INTERRUPTED,)
        elif is_conflict(result.reason):
            codes = (CONFLICT,)
        elif result.status is Status.DENIED:
            codes = (str(result.reason).partition(":")[0][:80],)
        files = [*result.created_files, *result.modified_files, *result.deleted_files]
        listed: list[Json] = [os.path.relpath(path, run.workspace) for path in files]
        committed = result.status is Status.SUCCESS
        self._end(
            run,
            step,
            status,
            codes=codes,
            current_state=after if committed else None,
            base_state=before,
            after_state=after if committed else before,
            receipt_id=result.receipt_id,
            receipt_sha256=records.receipt_sha256(name),
            document=json.dumps({"files": listed, "reason": result.reason}),
        )
        self._tell_end(run, step, status, result.reason, result)
        if CONFLICT in codes:
            self.on_event(
                {"at": "conflict", "run": run.run_id, "item": step.item_id, "why": result.reason}
            )

    def _tell_end(
        self,
        run: Run,
        step: Step,
        status: StepStatus,
        reason: str | None,
        result: RunResult | None = None,
    ) -> None:
        self.on_event(
            {
                "at": "ended",
                "run": run.run_id,
                "item": step.item_id,
                "status": status.value,
                "reason": reason,
                "receipt_id": None if result is None else result.receipt_id,
                "files": 0 if result is None else result.metrics.files_touched,
                "elapsed_ms": 0 if result is None else result.metrics.execution_time_ms,
            }
        )

    def _end(self, run: Run, step: Step, status: StepStatus, **columns: Any) -> None:
        self.ledger.end_step(run, step.step_index, status, **columns)

    def _step(
        self, run: Run, index: int, kind: StepKind, item_id: str | None, attempt: int
    ) -> Step:
        return Step(
            run_id=run.run_id,
            step_index=index,
            kind=kind,
            item_id=item_id,
            attempt=attempt,
            revision=run.revision,
            epoch=run.epoch,
            fence=run.fence,
            worker=current_owner(),
            state=StepState.STARTED,
            started_at=rfc3339(self.clock()),
        )
