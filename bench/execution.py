"""Governed executions beside bare processes, and beside the peers that are installed.

`actum` is a request that differs from the one before, `actum, repeated` the same one again. The
peers cache nothing between requests, so theirs repeat.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import costs
import load
import warm
from measured import interleaved, ratios
from peers import Peers, peers
from project import project

import actum
from actum import Runtime

_TRUE = "/bin/true"
_PYTHON = "/usr/bin/python3"
_ACTUM = str(Path(sys.executable).parent / "actum")
OURS, REPEATED = "actum", "actum, repeated"


def _bare(*argv: str) -> Callable[[], object]:
    return lambda: subprocess.run(argv, capture_output=True, check=True)


def _governed(rt: Runtime) -> dict[str, Callable[[], object]]:
    """`/bin/true`, with a new argument each time and with none."""
    numbers = itertools.count()
    return {
        OURS: lambda: rt.exec("nothing", str(next(numbers))).check(),
        REPEATED: lambda: rt.exec("nothing").check(),
    }


def measure(rounds: int = 200) -> dict[str, Any]:
    _compile()
    with peers() as others, project() as root:
        os.chdir(root)
        with Runtime.open(root) as rt:
            found: dict[str, Any] = {
                "peers_left_out": others.left_out,
                "true": _true(rt, others, rounds),
                "python": _snippet(rt, others, max(20, rounds // 4)),
                "command": _command(max(10, rounds // 8)),
                "throughput": _throughput(rt),
                "load": load.measure(_under_load(rt, others)),
                "costs": costs.measure(rt),
                "preload_numpy": warm.preload(rt),
                "stdout_1_gib": _volume(rt),
            }
        with Runtime.open(root) as rt:
            found["memory"] = warm.memory(rt)
        return found


def _compile() -> None:
    """As an installed package is: no part of a start may be the compiler's."""
    for folder in (Path(actum.__file__).parent, Path(sys.prefix) / "lib"):
        words = [sys.executable, "-m", "compileall", "-q", str(folder)]
        subprocess.run(words, capture_output=True, check=False)


def _true(rt: Runtime, others: Peers, rounds: int) -> dict[str, Any]:
    bare, ours = _bare(_TRUE), _governed(rt)
    results = interleaved({"bare": bare, **ours, **others.true}, rounds)
    found = {"results": results, "ratios": ratios(results, "bare")}
    if others.slow:
        slow = interleaved({"bare": bare, **ours, **others.slow}, max(5, rounds // 20))
        for name in others.slow:
            found["results"][name] = slow[name]
            found["ratios"][name] = ratios(slow, "bare")[name]
    return found


def _snippet(rt: Runtime, others: Peers, rounds: int) -> dict[str, Any]:
    numbers = itertools.count()
    results = interleaved(
        {
            "bare": _bare(_PYTHON, "-c", "print(1)"),
            OURS: lambda: rt.python(f"print({next(numbers)})").check(),
            REPEATED: lambda: rt.python("print(1)").check(),
            **others.snippet,
            "pause": lambda: time.sleep(0.02),
        },
        rounds,
    )
    results.pop("pause")
    return {"results": results, "ratios": ratios(results, "bare")}


def _under_load(rt: Runtime, others: Peers) -> dict[str, Callable[[], object]]:
    found = {"bare": _bare(_TRUE), OURS: _governed(rt)[OURS]}
    if "bwrap" in others.true:
        found["bwrap"] = others.true["bwrap"]  # the only peer that many threads can call at once
    return found


def _command(rounds: int) -> dict[str, Any]:
    numbers = itertools.count()

    def new_argument() -> object:
        return _bare(_ACTUM, "exec", "nothing", str(next(numbers)))()

    results = interleaved(
        {
            "bare": _bare(_PYTHON, "-c", "pass"),
            OURS: new_argument,
            REPEATED: _bare(_ACTUM, "exec", "nothing"),
        },
        rounds,
    )
    return {"results": results, "ratios": ratios(results, "bare")}


def _throughput(rt: Runtime, seconds: float = 2.0) -> dict[str, Any]:
    """Executions per second at several concurrencies; best governed over best bare."""
    contenders = {"bare": _bare(_TRUE), **_governed(rt)}
    rows: dict[str, dict[str, float]] = {name: {} for name in contenders}
    for workers in (1, 2, 4, 8, 16):
        for name, work in contenders.items():
            rows[name][str(workers)] = _rate(work, workers, seconds)
    best = {name: max(rates.values()) for name, rates in rows.items()}
    return {
        "per_second": rows,
        "ratios": {name: round(best[name] / best["bare"], 3) for name in (OURS, REPEATED)},
    }


def _rate(work: Callable[[], object], workers: int, seconds: float) -> float:
    until = time.monotonic() + seconds
    counts = [0] * workers

    def loop(index: int) -> None:
        while time.monotonic() < until:
            work()
            counts[index] += 1

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(counts) / seconds, 1)


def _volume(rt: Runtime) -> dict[str, Any]:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    result = rt.exec("shell", stdin=b"head -c 1073741824 /dev/zero", timeout="2m").check()
    assert result.streams is not None
    return {
        "bytes": result.streams["stdout"].bytes,
        "kept": result.streams["stdout"].kept,
        "host_memory_growth_mib": round((resident() - before) / 2**20, 1),
    }


if __name__ == "__main__":
    import json

    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 60), indent=1))
