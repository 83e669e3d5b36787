"""A worker that kills or stops itself when it passes a point. Started by test_run_moments.py.

    python run_driver.py PROJECT POINT MOMENT SIGNAL

Points of a work item's own process are in run_hooks/sitecustomize.py. Prints each event of the
worker as one line.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

PROJECT, POINT, MOMENT, SIGNAL = sys.argv[1:5]
os.environ["ACTUM_TEST_WORKER"] = str(os.getpid())
os.environ["ACTUM_TEST_POINT"] = f"{POINT} {MOMENT}"

from actum import Runtime  # noqa: E402
from actum.runs import run_ledger, worker  # noqa: E402
from actum.runs.perform import Performer  # noqa: E402
from actum.runs.run_ledger import RunLedger  # noqa: E402
from actum.work.work_items import WorkItems  # noqa: E402

#: Point -> where it is, and which call of it.
CALLS: Mapping[str, tuple[Any, str, int]] = {
    "order": (worker.Worker, "_claimed", 1),
    "verify": (worker, "stored_flaw", 1),
    "claim": (RunLedger, "claim", 1),
    "settle": (Performer, "settle", 1),
    "plan": (RunLedger, "plan", 1),
    "started": (RunLedger, "start_step", 1),
    "may commit": (RunLedger, "require_claim", 1),
    "answered": (WorkItems, "run_or_hold", 1),
    "ended": (RunLedger, "end_step", 1),
    "light": (Performer, "validate", 1),
    "light verdict": (Performer, "_found_by", 1),
    "correction": (Performer, "correct", 1),
    "heavy": (Performer, "validate", 4),
    "heavy verdict": (Performer, "_found_by", 4),
    "run receipt": (run_ledger, "run_receipt", 1),
}
EVENTS = ("frozen", "called", "ready")


def strike() -> None:
    # No other thread of this process holds the store's lock: it would be stopped with it.
    with opened[0].database._lock:
        os.kill(os.getpid(), getattr(signal, SIGNAL))
        time.sleep(0.5)  # another thread may take the signal, and stops this one later


def arm(owner: Any, name: str, number: int) -> None:
    original: Callable[..., Any] = getattr(owner, name)
    passed = [0]

    def dying(*arguments: Any, **more: Any) -> Any:
        passed[0] += 1
        if passed[0] == number and MOMENT == "before":
            strike()
        answer = original(*arguments, **more)
        if passed[0] == number and MOMENT == "after":
            strike()
        return answer

    setattr(owner, name, dying)


def arm_end() -> None:
    """The write that ends the run."""
    original = RunLedger.set_status

    def dying(self: RunLedger, run: Any, status: Any, **columns: Any) -> Any:
        if status.value == "complete" and MOMENT == "before":
            strike()
        answer = original(self, run, status, **columns)
        if status.value == "complete" and MOMENT == "after":
            strike()
        return answer

    RunLedger.set_status = dying  # type: ignore[method-assign]


def on_event(event: Mapping[str, Any]) -> None:
    print(event["at"], flush=True)
    if event["at"] == POINT and POINT in EVENTS and not struck:
        struck.append(POINT)
        strike()


opened: list[Runtime] = []
struck: list[str] = []
if POINT == "decision":
    arm_end()
elif POINT in CALLS:
    arm(*CALLS[POINT])
with Runtime.open(PROJECT, pool=False) as rt:
    opened.append(rt)
    rt.runs.worker(on_event=on_event).drain()
