"""The memory of prepared sandboxes and interpreters, and the time that early imports save."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measured import interleaved, ratios

from actum import Runtime

_PYTHON = "/usr/bin/python3"


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting.extend(new)
    return found


def _proportional_kib(pids: set[int]) -> int:
    """PSS: shared pages count by their share."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def _children(pid: int) -> set[int]:
    return {each for each in _descendants(pid) if _parent(each) == pid}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _members(spawner: int) -> dict[str, set[int]]:
    """The processes of each sandbox, by its process namespace."""
    ours, found = os.readlink("/proc/self/ns/pid"), dict[str, set[int]]()
    for pid in _descendants(spawner):
        try:
            theirs = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue  # it has ended
        if theirs != ours:
            found.setdefault(theirs, set()).add(pid)
    return found


def _interpreters(members: dict[str, set[int]]) -> dict[str, set[int]]:
    return {name: pids for name, pids in members.items() if any(map(_is_python, pids))}


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def memory(rt: Runtime) -> dict[str, Any]:
    """Kibibytes, shared pages by their share: the spawner with its helpers, and each prepared
    sandbox with all its processes."""
    before = _children(os.getpid())
    rt.exec("nothing").check()
    time.sleep(1)
    (spawner,) = _children(os.getpid()) - before
    prepared = _members(spawner)
    helpers = _descendants(spawner).difference(*prepared.values())
    found = {
        "spawner_kib": _proportional_kib({spawner, *helpers}),
        **_of_members("sandbox", prepared),
    }
    for _ in range(2):
        rt.python("1").check()
        time.sleep(1)
    return {**found, **_of_members("interpreter", _interpreters(_members(spawner)))}


def _of_members(name: str, members: dict[str, set[int]]) -> dict[str, int]:
    each = _proportional_kib(set().union(*members.values())) // max(1, len(members))
    return {f"{name}_members": len(members), f"per_{name}_kib": each}


def preload(rt: Runtime, rounds: int = 15) -> dict[str, Any]:
    """A snippet that needs numpy, imported before the request, beside a bare import."""
    snippet = "import numpy\nint(numpy.arange({}).sum())"
    numbers = itertools.count(10)
    installed = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    venv = rt.settings.root / "venv"
    packages = venv / installed.relative_to(sys.prefix)
    for name in ("numpy", "numpy.libs"):
        if (installed / name).is_dir():
            shutil.copytree(installed / name, packages / name)
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    contenders: dict[str, Callable[[], object]] = {
        "bare import": lambda: subprocess.run(
            [_PYTHON, "-c", snippet.format(10)], capture_output=True, check=True, env=environment
        ),
        "actum": lambda: rt.python(
            snippet.format(next(numbers)), preload=["numpy"], venv=venv
        ).check(),
        "pause": lambda: time.sleep(0.4),  # the next interpreter imports meanwhile
    }
    try:
        results = interleaved(contenders, rounds)
    except Exception as error:  # noqa: BLE001  listed with its reason
        return {"left_out": f"{type(error).__name__}: {error}"[:300]}
    results.pop("pause")
    return {"results": results, "ratios": ratios(results, "bare import")}
