"""A warm call of an MCP tool: through Actum, with the server kept open, and through the MCP library
alone. The same server, the same arguments; only Actum's is sandboxed, judged, recorded and signed.

The library is an asynchronous one. Measured are both from its own loop, and a caller on another
thread, who has to hand each call over to that loop and get its answer back.

Not called `mcp`: this folder comes first where modules are looked for.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from measured import interleaved, ratios, summary

from actum.contract.model import RunnerKind
from actum.engine.project import create
from actum.registry.change import approve
from actum.store.keys import Keyring
from actum.wiring import Runtime

EXAMPLE = Path(__file__).parents[1] / "examples" / "mcp" / "notes"
NOTE = {"title": "milk", "text": "two bottles"}
_ROUNDS = 200


def measure() -> dict[str, object]:
    root = Path(tempfile.mkdtemp(prefix="actum-bench-"))
    try:
        create(root, RunnerKind.LOCAL, by="user:bench", date="2026-11-15")
        shutil.copytree(EXAMPLE, root / "tools" / "notes")
        keyring = Keyring.open(root / ".actum")
        approve(root, keyring, "notes", by="user:b", evidence="bench", date="2026-11-15")
        with Runtime.open(root) as runtime:
            return asyncio.run(_measured(runtime, root))
    finally:
        shutil.rmtree(root)


async def _measured(runtime: Runtime, root: Path) -> dict[str, object]:
    from mcp import Client, StdioServerParameters

    loop = asyncio.get_running_loop()
    server = StdioServerParameters(
        command="/usr/bin/python3", args=["-I", "-S", str(EXAMPLE / "server" / "notes.py")]
    )

    def governed() -> None:
        runtime.exec("notes:remember", cwd=root, parameters=NOTE).check()

    async with Client(server) as client:

        async def alone() -> None:
            await client.call_tool("remember", NOTE)

        def from_a_thread() -> None:
            asyncio.run_coroutine_threadsafe(alone(), loop).result()

        rows = await _in_turn(alone, governed)
        threads = await loop.run_in_executor(
            None, lambda: interleaved({"library": from_a_thread, "governed": governed}, _ROUNDS)
        )
    return {
        **rows,
        "library_called_from_a_thread": threads["library"],
        "governed_beside_threads": threads["governed"],
        "governed_to_library": ratios(rows, "library_alone")["governed"],
        "governed_to_library_called_from_a_thread": ratios(threads, "library")["governed"],
        "python": sys.version.split()[0],
    }


async def _in_turn(
    alone: Callable[[], Awaitable[None]], governed: Callable[[], None]
) -> dict[str, dict[str, float]]:
    """Both from the thread of the library's own loop, so that neither has to hand over to another
    thread, and one after the other, so that each finds the caches as the other has left them."""
    await alone()
    governed()
    samples: dict[str, list[float]] = {"library_alone": [], "governed": []}
    order, shuffle = list(samples), random.Random(0).shuffle
    for _ in range(_ROUNDS):
        shuffle(order)
        for name in order:
            began = time.perf_counter()
            if name == "governed":
                governed()
            else:
                await alone()
            samples[name].append((time.perf_counter() - began) * 1000)
    return {name: summary(values) for name, values in samples.items()}
