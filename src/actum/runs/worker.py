"""A worker: claims queued runs and carries them out; brings back the runs of dead workers.

One process, a thread per run. It takes no environment into a run and checks every stored contract
before the claim. Runs of another queue belong to workers of another version; if none of those is
running, the run is shown as blocked.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from actum.evidence.owner import current_owner, is_alive
from actum.runs.carry_out import carry_out, refuse, stored_flaw
from actum.runs.contract.check import UNSUPPORTED, Flaw
from actum.runs.dispatch import Changes, WorkerFile, live_workers
from actum.runs.model import Run
from actum.runs.new_run import queue_of
from actum.runs.perform import OnEvent, Performer
from actum.runs.run_ledger import Fenced, RunLedger
from actum.runs.run_status import RunStatus
from actum.store.keys import PublicKey
from actum.value import value
from actum.work.item_process import Stop

FAULT = "RUN_FAULT"
#: Claims without a new step after which a run is lost.
LOST_AFTER = 5
_RECONCILE_EVERY_S = 1.0
_WAIT_S = 0.25


@value
class _Running:
    thread: threading.Thread
    stop: Stop


@value
class Worker:
    home: Path
    root: Path  #: the folder that its runs are carried out in
    ledger: RunLedger
    performer: Callable[[OnEvent], Performer]
    trusted: Mapping[str, PublicKey]
    concurrency: int = 1
    on_event: OnEvent = lambda _event: None

    def serve(self, *, until: threading.Event, grace_s: float = 30.0) -> None:
        """Carry out runs until `until` is set. Then each current action ends by itself within
        `grace_s`, or is ended, and its run goes back to the queue."""
        running: list[_Running] = []
        reconciled = 0.0
        with WorkerFile(self.home, queues=(queue_of(),)), Changes(self.home) as changes:
            try:
                while not until.is_set():
                    if time.monotonic() - reconciled > _RECONCILE_EVERY_S:
                        self._reconcile()
                        reconciled = time.monotonic()
                    running = [each for each in running if each.thread.is_alive()]
                    free = self.concurrency - len(running)
                    running += [self._start(run, until) for run in self._claimed(free)]
                    changes.wait(_WAIT_S)
            finally:
                until.set()
                _wait_for(running, grace_s)

    def work(self, run_id: str) -> None:
        """Carry out one run, unless another worker does, and return when it has ended. Ctrl-C
        cancels it."""
        leaving = threading.Event()
        mine: list[_Running] = []
        with WorkerFile(self.home, queues=(queue_of(),)), Changes(self.home) as changes:
            try:
                while not self._is_over(run_id):
                    self._reconcile()
                    if not any(each.thread.is_alive() for each in mine):
                        mine = [self._start(run, leaving) for run in self._claimed(1, run_id)]
                    changes.wait(_WAIT_S)
            except KeyboardInterrupt:
                self.ledger.cancel(run_id, "signal:SIGINT")
            finally:
                for each in mine:
                    each.thread.join()

    def drain(self, until: threading.Event | None = None, grace_s: float = 30.0) -> None:
        """Carry out everything that is queued now, one run after the other; `until` and `grace_s`
        as for `serve`."""
        leaving = until or threading.Event()
        with WorkerFile(self.home, queues=(queue_of(),)):
            self._reconcile()
            while not leaving.is_set() and (claimed := self._claimed(1)):
                running = self._start(claimed[0], leaving)
                try:
                    while running.thread.is_alive() and not leaving.is_set():
                        running.thread.join(_WAIT_S)
                finally:
                    if running.thread.is_alive():
                        leaving.set()
                        _wait_for([running], grace_s)

    def _start(self, run: Run, leaving: threading.Event) -> _Running:
        stop = Stop()
        # A thread that lives as long as the run: item processes die with it.
        thread = threading.Thread(
            target=self._carry_out, args=(run, stop, leaving), name=f"actum-run-{run.run_id}"
        )
        thread.start()
        return _Running(thread=thread, stop=stop)

    def _is_over(self, run_id: str) -> bool:
        run = self.ledger.find(run_id)
        return run is None or run.ended_at is not None

    def _claimed(self, most: int, only: str | None = None) -> list[Run]:
        """Check the contracts of queued runs, and claim those that pass."""
        claimed: list[Run] = []
        for run in self.ledger.queued(queue=queue_of(), run_id=only):
            if len(claimed) >= most:
                break
            flaw = stored_flaw(run, self.trusted) or _elsewhere(run, self.root)
            if flaw is not None:
                refuse(run, flaw, self.ledger)
                self.on_event({"at": "refused", "run": run.run_id, "code": flaw.code})
                continue
            mine = self.ledger.claim(run, current_owner())
            if mine is not None:
                claimed.append(mine)
        return claimed

    def _carry_out(self, run: Run, stop: Stop, leaving: threading.Event) -> None:
        self.on_event({"at": "claimed", "run": run.run_id})
        try:
            ended = carry_out(run, self.performer(self.on_event), stop, leaving)
        except Fenced:
            self.on_event({"at": "fenced", "run": run.run_id})
            return
        # A run may not stay with a worker that gave it up, whatever the reason.
        except Exception as fault:  # noqa: BLE001
            details = json.dumps({"message": f"{type(fault).__name__}: {fault}"[:500]})
            ended = self.ledger.set_status(
                run, RunStatus.FAILED, error_code=FAULT, error_details=details
            )
        self.on_event(
            {
                "at": "over",
                "run": run.run_id,
                "status": ended.status.value,
                "code": ended.error_code,
            }
        )

    def _reconcile(self) -> None:
        """Bring back runs whose worker is gone; show runs that no live worker supports."""
        for run in self.ledger.at_work():
            if run.worker is not None and not is_alive(run.worker):
                self.ledger.bring_back(run, lost_after=LOST_AFTER)
        served = {queue for worker in live_workers(self.home) for queue in worker.queues}
        for run in self.ledger.queued():
            code = None if run.queue in served else UNSUPPORTED
            if run.blocked_code != code:
                self.ledger.block(run, code)


def _elsewhere(run: Run, root: Path) -> Flaw | None:
    """The seal names the folder: a home that was moved or copied carries nothing out elsewhere."""
    if run.workspace == str(root):
        return None
    return Flaw(
        code="WORKSPACE_MOVED",
        message=f"The run is for {run.workspace}, and this project is {root}. Submit it again.",
        details={"workspace": run.workspace, "project": str(root)},
    )


def _wait_for(running: Sequence[_Running], grace_s: float) -> None:
    until = time.monotonic() + grace_s
    for each in running:
        each.thread.join(max(0.0, until - time.monotonic()))
    for each in running:
        each.stop.stop()  # of those that are still at work; their steps are interrupted
        each.thread.join()
