"""A worker: carries out queued runs; brings back the runs of dead workers.

One process, a thread per run. The dispatch says which run is next. The worker takes no environment
into a run and checks every stored contract before the claim. Runs of another queue belong to
workers of another version; if none of those is running, the run is shown as blocked.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from actum.evidence.owner import current_owner
from actum.runs.carry_out import carry_out, refuse
from actum.runs.contract.check import SUPPORTED, UNSUPPORTED, Flaw, Supported
from actum.runs.dispatch.port import Dispatch, Ticket
from actum.runs.ledger.ledger_store import StoreUnreachable
from actum.runs.model import Run
from actum.runs.new_run import queues_of
from actum.runs.perform import OnEvent, Performer
from actum.runs.run_ledger import Fenced, RunLedger
from actum.runs.run_status import LOST_AFTER, RunStatus
from actum.runs.stored_contract import stored_flaw
from actum.store.keys import PublicKey
from actum.value import value
from actum.work.item_process import Stop

FAULT = "RUN_FAULT"
_RECONCILE_EVERY_S = 1.0
_WAIT_S = 0.25
_LEAVE_S = 0.05


class _Actions:
    """The runs that this process carries out now."""

    def __init__(self, leaving: threading.Event) -> None:
        self.leaving = leaving  #: set: the current action of each run ends, and the run is queued
        self._changed = threading.Condition()
        self._stops: set[Stop] = set()

    def begin(self) -> Stop:
        stop = Stop()
        with self._changed:
            self._stops.add(stop)
        return stop

    def over(self, stop: Stop) -> None:
        with self._changed:
            self._stops.discard(stop)
            self._changed.notify_all()

    @contextlib.contextmanager
    def one(self) -> Iterator[Stop]:
        stop = self.begin()
        try:
            yield stop
        finally:
            self.over(stop)

    def wait(self) -> None:
        """Until none is carried out."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stops)

    def end(self) -> None:
        """End the current actions at once; their steps are interrupted."""
        with self._changed:
            stops = [*self._stops]
        for stop in stops:
            stop.stop()


@value
class Worker:
    """Serves once: made for each call of `serve`, `work` or `drain`."""

    root: Path  #: the folder that its runs are carried out in
    ledger: RunLedger
    dispatch: Dispatch
    performer: Callable[[OnEvent], Performer]
    trusted: Mapping[str, PublicKey]
    concurrency: int = 1
    on_event: OnEvent = lambda _event: None
    supported: Supported = SUPPORTED

    def serve(self, *, until: threading.Event, grace_s: float = 30.0) -> None:
        """Carry out runs until `until` is set. Then each current action ends by itself within
        `grace_s`, or is ended, and its run goes back to the queue."""
        self._serve(_Actions(until), grace_s, once=False)

    def drain(self, until: threading.Event | None = None, grace_s: float = 30.0) -> None:
        """Carry out everything that is queued, then return; `until` and `grace_s` as for
        `serve`."""
        self._serve(_Actions(until or threading.Event()), grace_s, once=True)

    def work(self, run_id: str, claimed: Run | None = None) -> None:
        """Carry out one run, unless another worker does, and return when it has ended. `claimed` is
        the run, if this process has claimed it. Ctrl-C cancels it and ends its current step."""
        actions = _Actions(threading.Event())
        with self.dispatch.present(), self.dispatch.changes() as changes:
            try:
                while (run := self.ledger.find(run_id)) is not None and run.ended_at is None:
                    if claimed is None:
                        self._bring_back()
                        served = run.queue in queues_of(self.supported)
                        claimed = self._claimed(run.ticket) if served else None
                    if claimed is None:
                        changes.wait(_WAIT_S)
                    else:
                        self._start(claimed, actions).wait()
                        claimed = None
            except KeyboardInterrupt:
                self.ledger.cancel(run_id, "signal:SIGINT")
                actions.end()
            finally:
                actions.wait()

    def _serve(self, actions: _Actions, grace_s: float, *, once: bool) -> None:
        failed: list[BaseException] = []

        over = threading.Event()

        def serve() -> None:
            try:
                self.dispatch.serve(
                    lambda ticket: self._carry(ticket, actions), places=self.concurrency, once=once
                )
            except BaseException as error:  # noqa: BLE001 -- raised below, in the caller's thread
                failed.append(error)
            finally:
                over.set()

        self.reconcile()
        # In a thread of its own: the caller's receives Ctrl-C, and must not wait in the dispatch.
        threading.Thread(target=serve, name="actum-dispatch").start()
        reconciled = time.monotonic()
        try:
            # Not join: in Python 3.11, a thread counts as ended after a Ctrl-C in it.
            while not over.wait(_LEAVE_S) and not actions.leaving.is_set():
                if time.monotonic() - reconciled > _RECONCILE_EVERY_S:
                    self.reconcile()
                    reconciled = time.monotonic()
        finally:
            actions.leaving.set()
            self.dispatch.stop()
            if not over.wait(grace_s):
                actions.end()
                over.wait()
        if failed:
            raise failed[0]

    def _carry(self, ticket: Ticket, actions: _Actions) -> None:
        mine = None if actions.leaving.is_set() else self._claimed(ticket)
        if mine is not None:
            with actions.one() as stop:
                self._carry_out(mine, stop, actions.leaving)

    def _start(self, run: Run, actions: _Actions) -> threading.Event:
        """Carry out a run in a thread that lives as long as that: item processes die with it."""
        over = threading.Event()

        def carry_out() -> None:
            try:
                self._carry_out(run, stop, actions.leaving)
            finally:
                actions.over(stop)
                over.set()

        stop = actions.begin()
        threading.Thread(target=carry_out, name=f"actum-run-{run.run_id}").start()
        return over

    def _claimed(self, ticket: Ticket) -> Run | None:
        """Check the contract of a queued run, and claim it."""
        run = self.ledger.find(ticket.run_id)
        if run is None or run.ticket != ticket or run.status is not RunStatus.QUEUED:
            return None
        flaw = stored_flaw(run, self.trusted, self.supported) or _elsewhere(run, self.root)
        if flaw is not None:
            refuse(run, flaw, self.ledger)
            self.on_event({"at": "refused", "run": run.run_id, "code": flaw.code})
            return None
        return self.ledger.claim(run, current_owner())

    def _carry_out(self, run: Run, stop: Stop, leaving: threading.Event) -> None:
        self.on_event({"at": "claimed", "run": run.run_id})
        try:
            ended = carry_out(run, self.performer(self.on_event), stop, leaving)
        except Fenced:
            self.on_event({"at": "fenced", "run": run.run_id})
            return
        except StoreUnreachable:
            self.dispatch.give_up(run.ticket)
            self.on_event({"at": "given-up", "run": run.run_id})
            return
        # A run may not stay with a worker that gave it up, whatever the reason.
        except Exception as fault:  # noqa: BLE001
            details = json.dumps({"message": f"{type(fault).__name__}: {fault}"[:500]})
            try:
                ended = self.ledger.set_status(
                    run, RunStatus.FAILED, error_code=FAULT, error_details=details
                )
            except Fenced:
                self.on_event({"at": "fenced", "run": run.run_id})
                return
        self.on_event(
            {
                "at": "over",
                "run": run.run_id,
                "status": ended.status.value,
                "code": ended.error_code,
            }
        )

    def reconcile(self) -> None:
        """Bring back runs whose worker is gone; show runs that no live worker supports."""
        with self.dispatch.turn() as mine:
            if not mine:
                return
            self._bring_back()
            served = self.dispatch.served().union(queues_of(self.supported))
            for run in self.ledger.misplaced([*served]):
                self.ledger.block(run, None if run.queue in served else UNSUPPORTED)

    def _bring_back(self) -> None:
        at_work = {run.ticket: run for run in self.ledger.at_work()}
        for ticket in self.dispatch.absent([*at_work]):
            if self.ledger.bring_back(at_work[ticket], lost_after=LOST_AFTER) is not None:
                self.dispatch.wake()


def _elsewhere(run: Run, root: Path) -> Flaw | None:
    """The seal names the folder: a home that was moved or copied carries nothing out elsewhere."""
    if run.workspace == str(root):
        return None
    return Flaw(
        code="WORKSPACE_MOVED",
        message=f"The run is for {run.workspace}, and this project is {root}. Submit it again.",
        details={"workspace": run.workspace, "project": str(root)},
    )
