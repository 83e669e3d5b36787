"""Finding adapters among a thousand: listed at level 0, warm and cold, and searched at level 1."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from measured import interleaved

from actum.contract.model import RunnerKind
from actum.execution.discovery import Discovery
from actum.project import create
from actum.registry.digest import read_folder
from actum.registry.lock import Lock, write_lock
from actum.registry.model import Pin, ToolStatus
from actum.runtime import Runtime

TOOLS, ADAPTERS = 250, 4


def measure() -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="actum-bench-"))
    try:
        create(folder, RunnerKind.LOCAL, by="user:bench", date="2026-11-15")
        with Runtime.open(folder, pool=False) as runtime:
            _fill(folder, runtime)
        with Runtime.open(folder, pool=False) as runtime:
            count = len(runtime.discovery.adapters())
            rows = interleaved(
                {
                    "list_level_0_warm": runtime.discovery.adapters,
                    "list_level_0_another_process": lambda: _first_list(folder),
                    "search_level_1_one_hit": lambda: runtime.discovery.search(["find-077-2"]),
                    "open_a_project": lambda: Runtime.open(folder, pool=False).close(),
                },
                rounds=15,
            )
            cold = interleaved({"list_level_0_cold": lambda: _cold(runtime.discovery)}, rounds=3)
            loaded = {str(level): times for level, times in sorted(_levels(runtime).items())}
        return {"adapters": count, **rows, **cold, "levels_loaded_by_a_warm_list": loaded}
    finally:
        shutil.rmtree(folder)


def _first_list(folder: Path) -> None:
    """What a new process pays, its start aside; see open_a_project."""
    with Runtime.open(folder, pool=False) as runtime:
        runtime.discovery.adapters()


def _cold(discovery: Discovery) -> None:
    discovery.refresh()


def _levels(runtime: Runtime) -> dict[int, int]:
    runtime.services.registry.loaded.clear()
    runtime.discovery.adapters()
    return dict(runtime.services.registry.loaded)


def _fill(root: Path, runtime: Runtime) -> None:
    """Tools by the hundred, pinned in one stroke: approving them one by one is not measured."""
    source = root / "tools" / "ripgrep"
    tool = (source / "tool.yaml").read_text()
    adapter = (source / "adapters" / "ripgrep-search.yaml").read_text()
    pins = []
    for number in range(TOOLS):
        name, tool_id = f"find-{number:03}", f"TX-{number:03}"
        folder = root / "tools" / name
        (folder / "adapters").mkdir(parents=True)
        text = tool.replace("name: ripgrep", f"name: {name}")
        (folder / "tool.yaml").write_text(text.replace("tool_id: TL-003", f"tool_id: {tool_id}"))
        for index in range(ADAPTERS):
            text = adapter.replace("ADP-001", f"AX-{number:03}-{index}")
            text = text.replace("name: ripgrep-search", f"name: {name}-{index}")
            (folder / "adapters" / f"{index}.yaml").write_text(
                text.replace("tool_id: TL-003", f"tool_id: {tool_id}")
            )
        snapshot = read_folder(folder)
        pins.append(
            Pin(
                tool_id=tool_id,
                name=name,
                version="1.0.0",
                digest=snapshot.digest,
                status=ToolStatus.ACTIVE,
                approver="user:bench",
                date="2026-11-15",
                evidence="bench",
                adapters={f"AX-{number:03}-{index}": "1.0.0" for index in range(ADAPTERS)},
                files=snapshot.files,
            )
        )
    lock = Lock(pins=(*runtime.services.registry.lock().pins, *pins))
    write_lock(root, lock, runtime.keyring.signer)
