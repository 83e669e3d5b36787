"""What a transaction costs beside direct writing, by files changed and files in the project.

Each request is a new script that writes to some files of the project. The same script runs bare,
in a project that writes directly, and in a project whose executions are transactions. Milliseconds,
medians.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measured import interleaved

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.contract.os_user import os_user
from actum.project import create
from actum.registry.pinned_settings import approve_settings

SIZES = (100, 10_000, 100_000)
CHANGED = (0, 1, 10, 100)
MODES = ("direct", "transaction")
_ROUNDS = 25
_PAUSE_S = 0.02
_BY = "user:bench"


def measure() -> dict[str, Any]:
    return {str(size): _one_size(size) for size in SIZES}


def _one_size(size: int) -> dict[str, dict[str, float]]:
    with ExitStack() as stack:
        disk = os.environ.get("ACTUM_BENCH_DIR")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-", dir=disk))
        bare = Path(folder, "bare")
        names = _fill(bare, size)
        ways: dict[str, Callable[[bytes], object]] = {
            "bare": lambda script: subprocess.run(
                ["/bin/sh", "-s"], input=script, cwd=bare, check=True
            )
        }
        for mode in MODES:
            root = Path(folder, mode)
            _fill(root, size)
            runtime = stack.enter_context(opened(root, mode))
            ways[mode] = _asker(runtime, root)
        return {
            str(count): _one_count(names[:: size // max(count, 1)][:count], ways)
            for count in CHANGED
        }


def _one_count(names: list[str], ways: dict[str, Callable[[bytes], object]]) -> dict[str, float]:
    """The medians of one number of changed files."""
    numbers = itertools.count()
    lines = "".join(f"echo $NEW > {name}\n" for name in names)

    def asked(way: Callable[[bytes], object]) -> Callable[[], object]:
        return lambda: way(f"NEW={next(numbers)}\n{lines}".encode())

    contenders = {name: asked(way) for name, way in ways.items()}
    found = interleaved(contenders, _ROUNDS, warm_up=3, pause_s=_PAUSE_S)
    return {name: row["p50_ms"] for name, row in found.items()}


def _asker(runtime: Runtime, root: Path) -> Callable[[bytes], object]:
    return lambda script: runtime.exec("shell", stdin=script, cwd=root).check()


def _fill(root: Path, size: int) -> list[str]:
    names = []
    for number in range(size):
        name = f"d{number // 100:04d}/f{number:06d}"
        if number % 100 == 0:
            (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(b"%d\n" % number * 20)
        names.append(name)
    return names


def opened(root: Path, mode: str, engine: str = "") -> Runtime:
    date = datetime.now(UTC).date().isoformat()
    create(root, RunnerKind.LOCAL, by=_BY, date=date)
    with (root / "actum.toml").open("a") as settings:
        settings.write(f'\n[workspace]\nchanges = "{mode}"\n')
        if engine:
            settings.write(f'engine = "{engine}"\n')
    approve_settings(root, root / ".actum", by=_BY, user=os_user(), date=date, why="bench")
    return Runtime.open(root)
