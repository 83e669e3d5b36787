"""The docker runner beside `docker run --rm`, and 1 GiB of output beside Docker's attach.

The engine is the one of the tests (`tests/engines`): Docker in namespaces of its own, without a
registry. Requests differ: a new script each time, in one project, and in a new directory with new
limits. One runtime makes containers ahead, the other one (cold) does not. Docker's own command runs
the same shell with the same guards. A hit is a request that a waiting container has served.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from measured import interleaved  # noqa: E402 -- in the folder of this script

ROUNDS = int(os.environ.get("ACTUM_BENCH_ROUNDS", "20"))
_GIB = 1 << 30
_FLOOD = f"head -c {_GIB} /dev/zero"


def measure() -> dict[str, Any]:
    from engines import images, missing_programs, shared, stop_all

    if why := missing_programs("docker"):
        return {"left_out": why}
    engine = shared("docker")
    try:
        found: dict[str, Any] = {"rounds": ROUNDS}
        tar = images.of_host()
        engine.import_image(tar, "bench/host")
        address = f"unix://{engine.socket}"
        with _project(address) as runtime, _project(address) as cold:
            _runner(cold)._idle = None
            found["starts"] = _starts(engine, runtime, cold)
            found["stdout_1_gib"] = _stdout(engine, runtime)
        return found
    finally:
        stop_all()


@contextmanager
def _project(host: str = "") -> Iterator[Any]:
    """A runtime: on this engine, or on the local runner."""
    from actum import Runtime
    from actum.contract.model import RunnerKind
    from actum.contract.os_user import os_user
    from actum.project import create
    from actum.registry.pinned_settings import approve_settings

    with tempfile.TemporaryDirectory(prefix="actum-bench-") as folder:
        root = Path(folder) / "project"
        kind = RunnerKind.DOCKER if host else RunnerKind.LOCAL
        create(root, kind, by="user:bench", date="2026-01-01")
        if host:
            with (root / "actum.toml").open("a") as file:
                file.write(f'\n[docker]\nhost = "{host}"\n')
            approve_settings(
                root, root / ".actum", by="user:bench", user=os_user(), date="2026-01-01"
            )
        (root / "work").mkdir()
        with Runtime.open(root) as runtime:
            yield runtime


def _docker(engine: Any, *more: str) -> list[str]:
    return [
        *("docker", "-H", f"unix://{engine.socket}", "run", "--rm", "-i", "--network", "none"),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--memory", "256m", "--memory-swap", "256m", "--pids-limit", "64", "--cpus", "1"),
        *(*more, "bench/host:1", "sh", "-s"),
    ]


COLD, SAME, ELSEWHERE, AT_ONCE = (
    "new script, none waits (cold)",
    "new script, same project",
    "new script, new directory and limits",
    "new script, same project, no pause",
)


def _starts(engine: Any, runtime: Any, cold: Any) -> dict[str, Any]:
    """To the end of a script that no request had before."""
    number = itertools.count()
    hits: dict[str, list[bool]] = {SAME: [], ELSEWHERE: [], AT_ONCE: []}
    served = _served(runtime)

    def script() -> bytes:
        return f"echo {next(number)}".encode()

    def governed(runtime: Any, cwd: Path, limits: dict[str, Any] | None = None) -> None:
        result = runtime.exec("shell", stdin=script(), cwd=cwd, set=limits or {})
        assert result.result is not None, result.violations

    def again(name: str = SAME) -> None:
        governed(runtime, runtime.settings.root / "work")
        hits[name].append(served.pop())

    def elsewhere() -> None:
        at = next(number)
        cwd = runtime.settings.root / f"new-{at}"
        cwd.mkdir()
        governed(runtime, cwd, {"sandbox.memory_mb": 64 + at % 400})
        hits[ELSEWHERE].append(served.pop())

    def run() -> None:
        subprocess.run(_docker(engine), input=script(), capture_output=True, check=True)

    times = interleaved(
        {
            "docker run": run,
            COLD: lambda: governed(cold, cold.settings.root / "work"),
            SAME: again,
            ELSEWHERE: elsewhere,
        },
        ROUNDS,
    )
    rapid = interleaved({AT_ONCE: lambda: again(AT_ONCE)}, ROUNDS, warm_up=0)
    times |= rapid  # its base is measured before it: without a pause nothing can be interleaved
    rates = {name: [sum(found), len(found)] for name, found in hits.items()}
    base = times["docker run"]["p50_ms"]
    found = {name: round(row["p50_ms"] / base, 3) for name, row in times.items()}
    return {"times": times, "ratios": found, "hits": rates}


def _served(runtime: Any) -> list[bool]:
    """Whether a waiting container served a request; one entry for each request."""
    idle, found = _runner(runtime)._idle, []
    take = idle.take

    def counted(*asked: Any) -> Any:
        started = take(*asked)
        found.append(started is not None)
        return started

    idle.take = counted
    return found


def _runner(runtime: Any) -> Any:
    from actum.contract.model import RunnerKind

    return runtime.services.runners[RunnerKind.DOCKER]


def _stdout(engine: Any, runtime: Any) -> dict[str, Any]:
    """1 GiB of output: through Docker's attach, and through passed pipes."""

    def attach() -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            [*_docker(engine)[:-2], "sh", "-c", _FLOOD], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            total = 0
            while block := process.stdout.read(1 << 20):
                total += len(block)
        assert total == _GIB
        return time.perf_counter() - began

    before, engine_before = _resident(os.getpid()), _resident(engine.daemon)
    began = time.perf_counter()
    limits = {"sandbox.timeout_ms": 120_000}
    result = runtime.exec("shell", stdin=_FLOOD, cwd=runtime.settings.root / "work", set=limits)
    ours = time.perf_counter() - began
    assert result.streams["stdout"].bytes == _GIB
    growth = _resident(os.getpid()) - before, _resident(engine.daemon) - engine_before
    theirs = attach()
    return {
        "seconds": round(ours, 2),
        "attach_seconds": round(theirs, 2),
        "ratio": round(ours / theirs, 2),
        "host_memory_growth_mib": round(growth[0] / 1024),
        "engine_memory_growth_mib": round(growth[1] / 1024),
    }


def _resident(pid: int) -> int:
    """Most memory that a process had, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError(f"no process {pid}")


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
