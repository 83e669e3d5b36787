"""Requests that differ from each other beside requests that repeat, and both beside bare programs.

Each contender is a separate process (`serve.py`): the bare programs, this Actum and, if a commit is
named, that version. Each has one process for requests that differ and another one for requests that
repeat, so that neither finds the caches of the other. All take turns in one run.

After each request there is a pause, in which a runtime prepares its next sandbox. An agent pauses
longer. The last kind has no pause within, and `throughput` and `load` have none at all.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import checkout
import traffic
from measured import interleaved

ROUNDS = 120
_WARM_UP = 4  #: the `python` tool finds an interpreter from the third request on
_PAUSE_S = 0.02
_SERVE = str(Path(__file__).parent / "serve.py")
OURS = checkout.REPOSITORY / "src"


class Server:
    """A process that makes requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.caller_cpu_ms: dict[str, list[float]] = {}
        self.source: str = self._answer()["source"]

    def ask(self, kind: str, number: int) -> float:
        """Milliseconds that the request took there."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, number]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        self.caller_cpu_ms.setdefault(kind, []).append(answer["caller_cpu_ms"])
        took: float = answer["ms"]
        return took

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a server of requests ended: exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _start(stack: ExitStack, folder: Path, name: str, source: Path | None) -> Server:
    """A server in a project of its own; `source` is the `src/` of an Actum, or nothing for bare."""
    root = folder / name
    root.mkdir()
    environment = dict(os.environ)
    if source is not None:
        environment = checkout.environment(source)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], check=True)
        words = ["-m", "actum.doors.cli.main", "init", "--runner", "local", str(root)]
        subprocess.run(
            [sys.executable, *words], env=environment, cwd=folder, check=True, capture_output=True
        )
    how = "bare" if source is None else "governed"
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, _SERVE, how, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
    )
    assert process.stdin is not None
    stack.callback(process.stdin.close)
    server = Server(process)
    if source is not None and Path(server.source) != source.resolve():
        raise RuntimeError(f"{name} was to run {source} and runs {server.source}")
    return server


def measure(rounds: int = ROUNDS, against: str | None = None) -> dict[str, Any]:
    against = against or os.environ.get("ACTUM_BENCH_AGAINST") or None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-")))
        sources: dict[str, Path | None] = {"bare": None, "actum": OURS}
        if against is not None:
            sources["against"] = stack.enter_context(checkout.checked_out(against))
        servers = {
            (name, how): _start(stack, folder, f"{name}-{how}", source)
            for name, source in sources.items()
            for how in ("differ", "repeated")
        }
        results = interleaved(
            {
                f"{kind}/{how}/{name}": _contender(server, kind, how)
                for kind in traffic.KINDS
                for (name, how), server in servers.items()
            },
            rounds,
            warm_up=_WARM_UP,
            pause_s=_PAUSE_S,
        )
        kinds: dict[str, Any] = {}
        for key, row in results.items():
            kind, how, name = key.split("/")
            used = servers[name, how].caller_cpu_ms[kind][_WARM_UP:]
            processor = {"caller_cpu_p50_ms": round(statistics.median(used), 3)}
            kinds.setdefault(kind, {}).setdefault(how, {})[name] = {**row, **processor}
    for ways in kinds.values():
        for rows in ways.values():
            mine = rows["actum"]["p50_ms"]
            rows["ratios"] = {
                name: round(mine / rows[name]["p50_ms"], 2) for name in sources if name != "actum"
            }
    return {
        "rounds": rounds,
        "pause_ms": _PAUSE_S * 1000,
        "against": None if against is None else checkout.short(against),
        "labels": dict(traffic.KINDS),
        "kinds": kinds,
    }


def _contender(server: Server, kind: str, how: str) -> Callable[[], float]:
    numbers = itertools.repeat(traffic.REPEATED) if how == "repeated" else itertools.count(1)
    return lambda: server.ask(kind, next(numbers))


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20), indent=1))
