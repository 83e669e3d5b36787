"""A warm call of an MCP tool: through Actum, with the server kept open, and through the MCP library
alone. The same server, the same arguments; only Actum's is sandboxed, judged, recorded and signed.

Not called `mcp`: this folder comes first where modules are looked for.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from measured import interleaved, ratios

from actum.contract.model import RunnerKind
from actum.engine.project import create
from actum.registry.change import approve
from actum.store.keys import Keyring
from actum.wiring import Runtime

EXAMPLE = Path(__file__).parents[1] / "examples" / "mcp" / "notes"
NOTE = {"title": "milk", "text": "two bottles"}


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

        # The library needs its loop, and the timing must not: it runs beside, in a thread.
        def bare() -> None:
            asyncio.run_coroutine_threadsafe(alone(), loop).result()

        rows = await loop.run_in_executor(
            None, lambda: interleaved({"library_alone": bare, "governed": governed}, rounds=200)
        )
        began = loop.time()
        for _ in range(200):
            await alone()
        in_loop_ms = round((loop.time() - began) * 5, 3)
    ratio = round(rows["governed"]["p50_ms"] / in_loop_ms, 2)
    return {
        **rows,
        "library_alone_in_its_loop_mean_ms": in_loop_ms,
        "governed_to_library": ratios(rows, "library_alone")["governed"],
        "governed_to_library_in_its_loop": ratio,
        "python": sys.version.split()[0],
    }
