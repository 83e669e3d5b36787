"""Carries out one claimed run: check the contract, settle, then decide, perform, record, repeat."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from actum.errors import ActumError, EvidenceUnavailable
from actum.runs.contract.check import Flaw
from actum.runs.contract.fields import Config
from actum.runs.contract.material import EFFECTIVE
from actum.runs.decide import Correct, Finish, MakePlan, RunLevel, Validate, decide, status_of
from actum.runs.governance import gate_decision
from actum.runs.ledger.ledger_store import StoreUnreachable
from actum.runs.model import Run
from actum.runs.perform import Performer
from actum.runs.plan_seal import plan_of
from actum.runs.planner import make_plan
from actum.runs.run_ledger import Fenced, RunLedger
from actum.runs.run_plan import Plan
from actum.runs.run_status import RunStatus
from actum.runs.work_done import blocked_items
from actum.work.item_process import Stop

CANCELLED = "CANCELLED"
_LOOK_EVERY_S = 0.25


def refuse(run: Run, flaw: Flaw, ledger: RunLedger) -> Run | None:
    """Fail a queued run whose contract is refused. No step is recorded, no folder is touched."""
    decision = gate_decision(run, flaw, (), None)
    details = json.dumps({"message": flaw.message, "details": dict(flaw.details)})
    return ledger.refuse(
        run, flaw.code, details, decision.hash, json.dumps(dict(decision.document))
    )


def carry_out(run: Run, performer: Performer, stop: Stop, leaving: threading.Event) -> Run:
    """Carry out a run that this process has claimed and whose contract was checked.

    When `leaving` is set, the current action ends and the run goes back to the queue; `stop` ends
    the current action at once. Raises `Fenced` if another worker has claimed the run since; then
    nothing is written any more.
    """
    ledger = performer.ledger
    with _watched(run, ledger, stop) as cancelled:
        try:
            performer.settle(run)
            plan = plan_of(run, ledger.steps(run.run_id), performer.work_items.trusted)
            if run.plan is None and plan.items:
                run = ledger.plan(run, plan.text())
            config: Config = run.contract[EFFECTIVE]
            return _go_through(run, plan, config, performer, stop, cancelled, leaving)
        except (Fenced, StoreUnreachable):
            stop.stop()
            raise
        except ActumError as error:
            details = json.dumps({"message": str(error), "details": {}})
            return ledger.set_status(
                run, RunStatus.FAILED, error_code=error.code, error_details=details
            )


def _go_through(
    run: Run,
    plan: Plan,
    config: Config,
    performer: Performer,
    stop: Stop,
    cancelled: threading.Event,
    leaving: threading.Event,
) -> Run:
    ledger = performer.ledger
    if run.base_state is None:
        state = performer.work_items.state_hash()
        run = ledger.set_status(run, run.status, base_state=state, current_state=state)
    while True:
        # The watcher looks from time to time. A stopped action may have ended before it did.
        if cancelled.is_set() or _is_cancelled(run, ledger):
            return ledger.set_status(run, RunStatus.CANCELLED, error_code=CANCELLED)
        if leaving.is_set():
            return ledger.hand_over(run) or run
        action = decide(config, plan, ledger.steps(run.run_id), run.resumed_at)
        status = status_of(action)
        if status is not run.status and not isinstance(action, Finish):
            run = ledger.set_status(run, status)
        match action:
            case MakePlan():
                run = make_plan(performer, run, action, plan, config, stop)
                plan = plan_of(run, ledger.steps(run.run_id), performer.work_items.trusted)
            case RunLevel():
                performer.run_level(run, action, config, stop)
            case Validate():
                performer.validate(run, action, plan, stop)
            case Correct():
                performer.correct(run, action, plan, config, stop)
            case Finish():
                _tell_blocked(run, plan, performer)
                return ledger.set_status(
                    run,
                    action.status,
                    error_code=action.code,
                    validation_status=action.validation,
                )


def _tell_blocked(run: Run, plan: Plan, performer: Performer) -> None:
    steps = performer.ledger.steps(run.run_id)
    for name, needs in blocked_items(plan, steps).items():
        ends = {str(step.item_id): str(step.status) for step in steps if step.item_id in needs}
        waits: dict[str, str] = {each: ends.get(each, "blocked") for each in needs}
        performer.on_event({"at": "blocked", "run": run.run_id, "item": name, "waits_for": waits})


def _is_cancelled(run: Run, ledger: RunLedger) -> bool:
    now = ledger.find(run.run_id)
    return now is not None and now.fence == run.fence and now.cancel_by is not None


@contextmanager
def _watched(run: Run, ledger: RunLedger, stop: Stop) -> Iterator[threading.Event]:
    """Ends the work of a run that a person cancels or another worker has claimed."""
    cancelled, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            try:
                now = ledger.find(run.run_id)
            except EvidenceUnavailable:
                continue  # another process holds the database; the next look may succeed
            if now is None or now.fence != run.fence:
                stop.stop()
                return
            if now.cancel_by is not None:
                cancelled.set()
                stop.stop()
                return

    watcher = threading.Thread(target=watch, name="actum-run-watch", daemon=True)
    watcher.start()
    try:
        yield cancelled
    finally:
        over.set()
        watcher.join()
