"""Open-loop load: requests arrive at a fixed rate, whether or not the last one is answered.

The time of a request counts from when it was due, so that waiting counts. A rate beyond the
machine's capacity shows as growing latencies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measured import summary

RATES = (20, 100, 200)


def at_rate(work: Callable[[], object], per_second: int, seconds: float) -> dict[str, Any]:
    """Latencies in milliseconds from due to done, and how many failed."""
    samples: list[float] = []
    failed: dict[str, int] = {}
    guard = threading.Lock()

    def one(due: float) -> None:
        problem = ""
        try:
            work()
        except Exception as error:  # noqa: BLE001  counted: a load that fails is a finding
            problem = type(error).__name__
        with guard:
            samples.append((time.perf_counter() - due) * 1e3)
            if problem:
                failed[problem] = failed.get(problem, 0) + 1

    with ThreadPoolExecutor(max_workers=64) as pool:
        began = time.perf_counter()
        for index in range(int(per_second * seconds)):
            due = began + index / per_second
            time.sleep(max(0.0, due - time.perf_counter()))
            pool.submit(one, due)
    taken = time.perf_counter() - began
    return {
        **summary(samples),
        "done_per_second": round(len(samples) / taken, 1),
        "failed": failed,
    }


def measure(contenders: dict[str, Callable[[], object]], seconds: float = 3.0) -> dict[str, Any]:
    return {
        name: {str(rate): at_rate(work, rate, seconds) for rate in RATES}
        for name, work in contenders.items()
    }
