"""Where the time of one governed execution goes: each step of governance, and each guard.

The steps are timed by wrapping functions of the product in this process only; the product has no
mode without one of them. Each guard is timed alone, over a bare fork, in a helper process that is
set up like the spawner. In an execution some of them overlap.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actum import Runtime

_SOURCE = str(Path(__file__).parent.parent / "src")

_GUARDS = """
import json, os, struct, sys, time
sys.path.insert(0, sys.argv[1]); rounds = int(sys.argv[2])
from actum import kernel, native
from actum.sandbox import landlock, seccomp, spawner, zygote
from actum.sandbox import host_probe
from actum.sandbox.cgroup import fresh_name
groups = host_probe.examine().cgroups

def plain(child):
    pid = os.fork()
    if pid == 0:
        try: child(); os._exit(0)
        except BaseException: os._exit(1)
    return os.waitpid(pid, 0)[1]

def apart(child):
    pid, pidfd = kernel.clone_process(zygote.NAMESPACES)
    if pid == 0:
        try: child(); os._exit(0)
        except BaseException: os._exit(1)
    os.close(pidfd)
    return os.waitpid(pid, 0)[1]

def nothing(): pass
def program(): os.execve("/bin/true", ["true"], {})
def rules():
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    permitted = landlock.ruleset(template.abi)
    for path in ("/usr", "/etc", "/proc"):
        folder = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", 1 | 4 | 8, folder)  # execute, read files, read folders
        kernel.syscall(445, "landlock_add_rule", permitted, 1, rule, 0)
        os.close(folder)
    landlock.restrict_self(permitted)
def filtered():
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(os.pread(template.filters[True], 1 << 15, 0))
def grouped():
    group = groups.make(fresh_name())
    group.limit(memory_bytes=256 << 20, cpu_cores=1, children=64)
    status = plain(nothing)
    group.remove()
    return status

taken, failed = {}, []
def compare(**ways):
    # Each over a bare fork, in turns.
    failed.extend(name for name, way in ways.items() if way())
    for name in failed: ways.pop(name, None)
    for _ in range(rounds):
        for name, way in {"fork": lambda: plain(nothing), **ways}.items():
            began = time.perf_counter()
            way()
            taken.setdefault(name, []).append((time.perf_counter() - began) * 1e3)

# First: the template is mounted where the groups are.
compare(cgroups=grouped, exec=lambda: plain(program))
_view, template = spawner._prepare(native.content(native.INIT))
compare(namespaces=lambda: apart(nothing),
        landlock=lambda: plain(rules), seccomp=lambda: plain(filtered))
print(json.dumps({"taken": taken, "failed": failed}))
"""


def guards(rounds: int = 100) -> dict[str, Any]:
    """Milliseconds of each guard over a bare fork, medians."""
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-S", "-c", _GUARDS, _SOURCE, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"left_out": done.stderr.strip().rpartition("\n")[2][:200]}
    found = json.loads(done.stdout)
    median = {name: statistics.median(values) for name, values in found["taken"].items()}
    over = {name: median[name] - median["fork"] for name in median if name != "fork"}
    return {
        "fork_ms": round(median["fork"], 3),
        "over_a_fork_ms": {name: round(max(0.0, cost), 3) for name, cost in over.items()},
        "left_out": found["failed"],
    }


class _Steps:
    """Own time of each wrapped function, without the wrapped functions that it calls."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}
        self._running: list[float] = []
        self._restore: list[Callable[[], None]] = []

    def wrap(self, label: str, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args: Any, **words: Any) -> Any:
            began = time.perf_counter()
            self._running.append(0.0)
            try:
                return original(*args, **words)
            finally:
                whole = time.perf_counter() - began
                inner = self._running.pop()
                if self._running:
                    self._running[-1] += whole
                self.taken.setdefault(label, []).append((whole - inner) * 1e3)

        setattr(owner, name, timed)
        self._restore.append(lambda: setattr(owner, name, original))

    def undo(self) -> None:
        for restore in self._restore:
            restore()


def steps(rt: Runtime, rounds: int = 100) -> dict[str, Any]:
    """Mean milliseconds per execution and step, in the order of the pipeline; each execution has a
    new script on stdin."""
    from actum.evidence.ledger import Ledger
    from actum.execution import pipeline, plan
    from actum.registry.registry import Registry
    from actum.runners.local import LocalRunner

    timing = _Steps()
    order = (
        ("parsing and filling in", Runtime, "contract"),
        ("registry", Registry, "entry"),
        ("checks and policy", plan, "judge"),
        ("plan and proof", plan, "make_plan"),
        ("write-ahead record", Ledger, "write_ahead"),
        ("sandbox and tool", LocalRunner, "run"),
        ("interpretation", pipeline, "conclude"),
        ("receipt and final record", Ledger, "seal"),
        ("the rest of the pipeline", pipeline, "execute"),
    )
    for label, owner, name in order:
        timing.wrap(label, owner, name)
    runtime_module = sys.modules["actum.runtime"]
    before, runtime_module.execute = runtime_module.execute, pipeline.execute  # type: ignore[attr-defined]
    whole = []
    try:
        for number in range(rounds):
            began = time.perf_counter()
            rt.exec("shell", stdin=f"echo {number}").check()
            whole.append((time.perf_counter() - began) * 1e3)
    finally:
        runtime_module.execute = before  # type: ignore[attr-defined]
        timing.undo()
    each = {
        label: round(sum(timing.taken.get(label, [])) / rounds, 3)
        for label, _, _ in order
        if label in timing.taken
    }
    rest = max(0.0, statistics.mean(whole) - sum(each.values()))
    return {
        "mean_ms": round(statistics.mean(whole), 3),
        "steps_ms": {**each, "library call": round(rest, 3)},
    }


def measure(rt: Runtime) -> dict[str, Any]:
    return {"guards": guards(), "steps": steps(rt)}
