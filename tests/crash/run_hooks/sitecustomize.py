"""Loaded by every Python that a trial starts; acts in the processes of work items only.

Kills the worker, not itself, at a point of the item's commit: the kernel then has to end this
process as well. The product knows neither this file nor its variables.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

_POINTS = {
    "intent": ("actum.workspace.commit", "write_intent"),
    "applied": ("actum.workspace.commit", "apply"),
    "records": ("actum.work.work_records", "WorkRecords.close"),
}


def _act() -> None:
    worker, point = os.environ.get("ACTUM_TEST_WORKER"), os.environ.get("ACTUM_TEST_POINT")
    if worker is None or point is None or int(worker) == os.getpid():
        return
    name, _, moment = point.rpartition(" ")
    if name not in _POINTS:
        return
    sys.path.insert(0, os.environ["ACTUM_TEST_HOOKS_PATH"])
    from strike_imports import wrap

    def kill() -> None:
        try:
            os.kill(int(worker), signal.SIGKILL)
        except ProcessLookupError:
            return  # killed by an earlier item: this is the process of another worker
        time.sleep(60)  # its death ends this process
        os._exit(3)

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*arguments: Any, **more: Any) -> Any:
            if moment == "before":
                kill()
            answer = original(*arguments, **more)
            if moment == "after":
                kill()
            return answer

        return dying

    wrap(*_POINTS[name], around)


_act()
