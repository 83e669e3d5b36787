"""The steps of a work item beside git and cp: freeze, delta, hash, commit, roll back.

10 of N files change. "owned": only work items write to the workspace, so its index is up to date;
"shared": a scan of all files comes first. A whole work item has its own process, one call of a
shell and all records, in a project of N files. Milliseconds, medians.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SIZES = (100, 10_000, 100_000)
ROUNDS = 5
CHANGED = 10
_GIT = ("git", "-c", "user.name=b", "-c", "user.email=b@b", "-c", "gc.auto=0")


def measure() -> dict[str, Any]:
    """In a process of its own, which may enter a namespace."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=True, cwd="/"
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    from actum.workspace import namespace

    namespace.enter()
    with tempfile.TemporaryDirectory(prefix="actum-bench-", dir=_disk()) as folder:
        print(json.dumps({str(size): _one_size(Path(folder, str(size)), size) for size in SIZES}))


def _disk() -> str | None:
    return os.environ.get("ACTUM_BENCH_DIR")


def _make(base: Path, size: int) -> list[Path]:
    files = []
    for number in range(size):
        folder = base / f"d{number // 100:04d}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        path = folder / f"f{number:06d}"
        path.write_bytes(b"%d\n" % number * 20)
        files.append(path)
    return files


def _one_size(folder: Path, size: int) -> dict[str, float]:
    base = folder / "base"
    picked = _make(base, size)[:: max(1, size // CHANGED)][:CHANGED]
    times: dict[str, list[float]] = defaultdict(list)
    _items(base, picked, times)
    _actum(folder, base, picked, times)
    _git(folder, base, picked, times)
    began = time.perf_counter()
    subprocess.run(["cp", "-a", str(base), str(folder / "copy")], check=True)
    times["cp -a"].append(time.perf_counter() - began)
    shutil.rmtree(folder)
    return {name: round(statistics.median(each) * 1000, 2) for name, each in times.items()}


def _items(base: Path, picked: list[Path], times: dict[str, list[float]]) -> None:
    """Whole work items, owned and shared, each once before it counts; and their bare command."""
    from actum import Runtime
    from actum.contract.model import RunnerKind
    from actum.contract.os_user import os_user
    from actum.project import create
    from actum.registry.pinned_settings import approve_settings

    create(base, RunnerKind.LOCAL, by="user:bench", date=datetime.now(UTC).date().isoformat())
    base.chmod(0o700)
    names = " ".join(str(path.relative_to(base)) for path in picked)
    script = f"for name in {names}; do date +%N > $name; done"
    for _ in range(ROUNDS):
        _time(
            times,
            "work item, bare",
            lambda: subprocess.run(["/bin/sh", "-s"], input=script.encode(), cwd=base, check=True),
        )
    (base / "agents").mkdir()
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": script}]}
    (base / "agents" / "agent-1.yaml").write_text(json.dumps(agent))
    item = {"id": "bench", "agent_id": "agent-1", "description": "Change some files"}
    settings = (base / "actum.toml").read_text()
    for name, exclusive in (("work item, owned", "true"), ("work item, shared", "false")):
        (base / "actum.toml").write_text(f"{settings}\n[work]\nexclusive = {exclusive}\n")
        approve_settings(
            base, base / ".actum", by="user:bench", user=os_user(), date="2026-11-15", why="bench"
        )
        with Runtime.open(base, pool=False) as runtime:
            _success(runtime.work(item))
            for _ in range(ROUNDS):
                _time(times, name, lambda: _success(runtime.work(item)))
    # The parts are measured on the files alone.
    for left in (".actum", "tools", "agents", "rules"):
        shutil.rmtree(base / left, ignore_errors=True)


def _success(result: Any) -> None:
    assert result.status == "success", result


def _actum(folder: Path, base: Path, picked: list[Path], times: dict[str, list[float]]) -> None:
    from actum.workspace import commit
    from actum.workspace.engine import Ground
    from actum.workspace.overlay import OverlayEngine
    from actum.workspace.space import Space

    home = folder / "home"
    home.mkdir()
    space = Space(home, base)
    space.scan()
    time.sleep(0.1)
    for number in range(ROUNDS):
        _time(times, "scan, shared", space.scan)
        room = space.run_folder(f"r{number}")
        ground = Ground(base=base, place=base, mounts=space.mounts, home=home, skip=space.skip)
        began = time.perf_counter()
        engine = OverlayEngine(ground)
        with engine.show():
            times["freeze, owned"].append(time.perf_counter() - began)
            for path in picked:
                path.write_text(f"changed {number}\n")
            with space.index() as index:
                began = time.perf_counter()
                delta = engine.delta(index)
                after = index.preview(delta)
                times["delta and hash"].append(time.perf_counter() - began)
            began = time.perf_counter()
            commit.stage(delta, engine, room)
        staged_s = time.perf_counter() - began
        began = time.perf_counter()
        engine.close()
        times["roll back"].append(time.perf_counter() - began)
        with space.held(alone=True), space.index() as index:
            began = time.perf_counter()
            staged = commit.keep(delta, base, room)
            space.change(room, staged, {}, lambda _record: None)
            index.accept(after)
            times["commit"].append(staged_s + time.perf_counter() - began)
        assert space.scan().state == after.state


def _git(folder: Path, base: Path, picked: list[Path], times: dict[str, list[float]]) -> None:
    def git(*words: str) -> None:
        command = [*_GIT, "--git-dir", str(folder / "git"), "--work-tree", str(base), *words]
        subprocess.run(command, check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "base")
    for number in range(3):
        _time(
            times,
            "git freeze (add, write-tree), warm",
            lambda: (git("add", "-A"), git("write-tree")),
        )
        for path in picked:
            path.write_text(f"git {number}\n")
        _time(times, "git commit after", lambda: (git("add", "-A"), git("commit", "-qm", "x")))
        for path in picked:
            path.write_text(f"undo {number}\n")
        _time(
            times,
            "git roll back (reset, clean)",
            lambda: (git("reset", "-q", "--hard"), git("clean", "-qfd")),
        )


def _time(times: dict[str, list[float]], name: str, work: Any) -> None:
    began = time.perf_counter()
    work()
    times[name].append(time.perf_counter() - began)


if __name__ == "__main__":
    main()
