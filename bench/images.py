"""What an image costs: a tool in it beside the same tool on the host's programs, and unpacking it.

Each request is a new script. "host" and "image" run the same programs: the image is made of the
host's own files. Milliseconds; unpacking in seconds, the best of a few, for an image of 80 MB.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measured import interleaved
from transactions import opened

from actum import Runtime
from actum.images.image_store import ImageStore

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from common.imaged_tools import add_image, give_image
from common.images import Layout, host_rootfs

_ROUNDS = 100
_PAUSE_S = 0.01
_UNPACKED = 5


def measure() -> dict[str, Any]:
    with ExitStack() as stack:
        disk = os.environ.get("ACTUM_BENCH_DIR")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-", dir=disk))
        archive = host_rootfs(Path(folder, "image.tar"), python=True)
        runtimes = {}
        for name in ("host", "image"):
            root = Path(folder, name)
            root.mkdir()
            runtime = stack.enter_context(opened(root, "transaction"))
            if name == "image":
                give_image(root, add_image(root, archive).reference, "shell")
                runtime.services.registry.forget()
            runtimes[name] = runtime
        contenders = {name: _script(runtime) for name, runtime in runtimes.items()}
        rows = interleaved(contenders, _ROUNDS, warm_up=10, pause_s=_PAUSE_S)
        times = {name: row["p50_ms"] for name, row in rows.items()}
        return {
            **times,
            "ratio": round(times["image"] / times["host"], 3),
            "image_mb": archive.stat().st_size >> 20,
            "unpack_s": _unpacking(Path(folder), archive),
        }


def _script(runtime: Runtime) -> Callable[[], object]:
    numbers, root = itertools.count(), runtime.settings.root
    return lambda: runtime.shell(f"echo {next(numbers)}", cwd=root).check()


def _unpacking(folder: Path, archive: Path) -> dict[str, float]:
    """Seconds, by the form of the archive."""
    layout = Layout()
    layout.image([archive.read_bytes()])
    forms = {"tar": archive, "gzip layer": layout.archive(folder / "layout.tar")}
    found: dict[str, float] = {}
    for name, file in forms.items():
        times = []
        for _ in range(_UNPACKED):
            with tempfile.TemporaryDirectory(dir=folder) as home:
                begun = time.perf_counter()
                ImageStore(Path(home)).add(file, at=datetime.now(UTC))
                times.append(time.perf_counter() - begun)
        found[name] = round(min(times), 3)
    return found
