"""What sealing an input file costs, by its size and by the folder that holds it.

Each request is a new script that reads one file. "live": the file is only read; "sealed": it is
listed as an input file, so it is copied, digested and mounted. Milliseconds, medians.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measured import interleaved
from transactions import opened

from actum import Runtime

SIZES = {"1 KB": 1_000, "100 KB": 100_000, "10 MB": 10_000_000}
#: Setting `[workspace] changes`, and the level of the request.
FOLDERS = {
    "transaction": ("transaction", "standard"),
    "read-only": ("direct", "minimal"),
    "direct": ("direct", "standard"),
}
_ROUNDS = 40
_PAUSE_S = 0.01


def measure() -> dict[str, Any]:
    with ExitStack() as stack:
        disk = os.environ.get("ACTUM_BENCH_DIR")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-", dir=disk))
        found: dict[str, Any] = {}
        for name, (mode, level) in FOLDERS.items():
            root = Path(folder, name)
            root.mkdir()
            runtime = stack.enter_context(opened(root, mode))
            found[name] = {
                size: _one_size(runtime, root / f"file-{count}", count, level)
                for size, count in SIZES.items()
            }
        return found


def _one_size(runtime: Runtime, file: Path, size: int, level: str) -> dict[str, float]:
    file.write_bytes(os.urandom(size))
    numbers = itertools.count()

    def reading(*files: str) -> Callable[[], object]:
        return lambda: runtime.exec(
            "shell",
            stdin=f"cat {file.name} > /dev/null # {next(numbers)}",
            files=files,
            cwd=file.parent,
            set={"sandbox.filesystem.level": level},
        ).check()

    contenders = {"live": reading(), "sealed": reading(str(file))}
    rows = interleaved(contenders, _ROUNDS, warm_up=5, pause_s=_PAUSE_S)
    return {name: row["p50_ms"] for name, row in rows.items()}
