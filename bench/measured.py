"""Interleaved timing: every contender once per round, in shuffled order, so that all see the same
machine. Ratios are of medians; the machine's own noise cancels out of them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping

Contender = Callable[[], object]


def interleaved(
    contenders: Mapping[str, Contender], rounds: int, *, warm_up: int = 1, pause_s: float = 0.0
) -> dict[str, dict[str, float]]:
    """Milliseconds per contender: least, median, 95th percentile.

    A contender that works in another process returns the milliseconds it took there, as a float.
    `warm_up` rounds are not counted. `pause_s` is slept after each contender.
    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    shuffle = random.Random(0).shuffle
    for number in range(-warm_up, rounds):
        shuffle(order)
        for name in order:
            began = time.perf_counter()
            answer = contenders[name]()
            took = (time.perf_counter() - began) * 1000
            if number >= 0:
                samples[name].append(answer if isinstance(answer, float) else took)
            if pause_s:
                time.sleep(pause_s)
    return {name: summary(values) for name, values in samples.items()}


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "least_ms": round(ordered[0], 3),
        "p50_ms": round(statistics.median(ordered), 3),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)], 3),
        "count": len(ordered),
    }


def ratios(results: Mapping[str, Mapping[str, float]], base: str) -> dict[str, float]:
    return {
        name: round(row["p50_ms"] / results[base]["p50_ms"], 2)
        for name, row in results.items()
        if name != base
    }
