"""What an execution costs whose writable folder is copied, beside one with an overlay.

    .venv/bin/python bench/copied_folders.py [FILES...]

Each request is a new script that writes to ten files of the project. Milliseconds, medians. Not
part of `make bench`: the largest project takes minutes.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from transactions import _fill, opened

from actum import Runtime

SIZES = (100, 10_000, 100_000)
ENGINES = ("overlay", "copy")
_ROUNDS = 5
_CHANGED = 10


def main(sizes: tuple[int, ...]) -> None:
    print("| files | " + " | ".join(ENGINES) + " |")
    print("|---|" + "---|" * len(ENGINES))
    for size in sizes:
        found = _one_size(size)
        print(f"| {size:,} | " + " | ".join(f"{found[each]:,.0f}" for each in ENGINES) + " |")


def _one_size(size: int) -> dict[str, float]:
    numbers = itertools.count()
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-")))
        runtimes: dict[str, Runtime] = {}
        for engine in ENGINES:
            root = folder / engine
            names = _fill(root, size)
            runtimes[engine] = stack.enter_context(opened(root, "transaction", engine))
        lines = "".join(f"echo $NEW > {name}\n" for name in names[:: size // _CHANGED][:_CHANGED])
        for _round, engine in itertools.product(range(_ROUNDS + 1), ENGINES):
            begun = time.perf_counter()
            script = f"NEW={next(numbers)}\n{lines}".encode()
            result = runtimes[engine].exec("shell", stdin=script, cwd=folder / engine).check()
            times[engine].append((time.perf_counter() - begun) * 1000)
            assert result.workspace is not None
            assert (result.workspace.engine, result.workspace.modified) == (engine, _CHANGED)
    return {engine: statistics.median(row[1:]) for engine, row in times.items()}


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)
