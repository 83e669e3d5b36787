"""One governed execution beside a bare process, and beside the peers that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measured import interleaved, ratios
from project import project

from actum import Runtime

_TRUE = "/bin/true"
_PYTHON = "/usr/bin/python3"
_ACTUM = str(Path(sys.executable).parent / "actum")


def _bare(*argv: str) -> Callable[[], object]:
    return lambda: subprocess.run(argv, capture_output=True, check=True)


def _bwrap(*argv: str) -> Callable[[], object]:
    wall = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
    wall += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc"]
    return _bare(*wall, "--dev", "/dev", "--tmpfs", "/tmp", *argv)


def measure(rounds: int = 200) -> dict[str, Any]:
    with project() as root:
        os.chdir(root)
        with Runtime.open(root) as rt:
            return {
                "true": _true(rt, rounds),
                "python": _snippet(rt, max(20, rounds // 3)),
                "command": _command(max(10, rounds // 10)),
                "throughput": _throughput(rt),
                "stdout_1_gib": _volume(rt),
            }


def _true(rt: Runtime, rounds: int) -> dict[str, Any]:
    contenders: dict[str, Callable[[], object]] = {
        "bare": _bare(_TRUE),
        "actum": lambda: rt.exec("nothing").check(),
    }
    if shutil.which("bwrap"):
        contenders["bwrap"] = _bwrap(_TRUE)
    try:
        import nono_py
        import sandlock
    except ImportError:
        pass
    else:
        box = sandlock.Sandbox()
        contenders["sandlock"] = lambda: box.run([_TRUE])
        contenders["nono"] = lambda: nono_py.sandboxed_exec(nono_py.CapabilitySet(), [_TRUE])
    results = interleaved(contenders, rounds)
    return {"results": results, "ratios": ratios(results, "bare")}


def _snippet(rt: Runtime, rounds: int) -> dict[str, Any]:
    results = interleaved(
        {
            "bare": _bare(_PYTHON, "-c", "print(1)"),
            "actum": lambda: rt.python("print(1)").check(),
            "pause": lambda: time.sleep(0.02),
        },
        rounds,
    )
    results.pop("pause")
    return {"results": results, "ratios": ratios(results, "bare")}


def _command(rounds: int) -> dict[str, Any]:
    results = interleaved(
        {
            "bare": _bare(_PYTHON, "-c", "pass"),
            "actum exec": _bare(_ACTUM, "exec", "nothing"),
        },
        rounds,
    )
    return {"results": results, "ratios": ratios(results, "bare")}


def _throughput(rt: Runtime, seconds: float = 2.0) -> dict[str, Any]:
    """Executions per second at several concurrencies; best governed over best bare."""
    rows: dict[str, dict[str, float]] = {"bare": {}, "actum": {}}
    for workers in (1, 2, 4, 8, 16):
        rows["bare"][str(workers)] = _rate(_bare(_TRUE), workers, seconds)
        rows["actum"][str(workers)] = _rate(lambda: rt.exec("nothing").check(), workers, seconds)
    best = max(rows["actum"].values()) / max(rows["bare"].values())
    return {"per_second": rows, "ratio": round(best, 3)}


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
