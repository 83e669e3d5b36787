"""A warm call of an MCP tool: through Actum, with the server kept open, and through the MCP library
alone. The same server, the same arguments; only Actum's is sandboxed, judged, recorded and signed.

Of two servers: the one from npm that ADP-003 is about, which does what a server does; and one of
forty lines of the standard library, which does nothing. A call of that one is all overhead.

The library is an asynchronous one. Measured are both from its own loop, and a caller on another
thread, who has to hand each call over to that loop and get its answer back.

Not called `mcp`: this folder comes first where modules are looked for.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from measured import interleaved, ratios, summary

from actum.contract.model import RunnerKind
from actum.engine.project import create
from actum.registry.change import approve
from actum.store.keys import Keyring
from actum.wiring import Runtime

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "mcp" / "notes"
ADP_003 = HERE.parent / "tests" / "unit" / "registry" / "data" / "ADP-003.yaml"
NOTE = {"title": "milk", "text": "two bottles"}
NPM = Path(sys.prefix) / "npm" / "node_modules"
FILESYSTEM = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
_ROUNDS = 200


class _Server(NamedTuple):
    """One server, as it is called by both sides."""

    tool: Path  #: the folder of the tool that it serves
    command: list[str]
    operation: str
    parameters: Mapping[str, str]


def measure() -> dict[str, object]:
    root = Path(tempfile.mkdtemp(prefix="actum-bench-"))
    try:
        create(root, RunnerKind.LOCAL, by="user:bench", date="2026-11-15")
        nothing = ["/usr/bin/python3", "-I", "-S", str(EXAMPLE / "server" / "notes.py")]
        found: dict[str, object] = {
            "server_that_does_nothing": _called(root, _Server(EXAMPLE, nothing, "remember", NOTE)),
            "python": sys.version.split()[0],
        }
        node = shutil.which("node")
        if node is None or not NPM.exists():
            found["left_out"] = "server_of_files: scripts/npm-servers could not install it"
            return found
        shutil.copytree(NPM, root / "node_modules", copy_function=_place)
        adapters = root / "tools" / "mcp-filesystem" / "adapters"
        adapters.mkdir(parents=True)
        shutil.copy(ADP_003, adapters)
        note = root / "note.txt"
        note.write_text("two bottles of milk\n")
        files = _Server(
            HERE / "tools" / "mcp-filesystem",
            [node, str(root / FILESYSTEM), str(root)],
            "read_file",
            {"path": str(note)},
        )
        return {"server_of_files": _called(root, files), **found}
    finally:
        shutil.rmtree(root)


def _place(source: str, target: str) -> None:
    """The same file once more, where that is possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _called(root: Path, server: _Server) -> dict[str, object]:
    name = server.tool.name
    shutil.copytree(server.tool, root / "tools" / name, dirs_exist_ok=True)
    approve(
        root, Keyring.open(root / ".actum"), name, by="user:b", evidence="bench", date="2026-11-15"
    )
    with Runtime.open(root) as runtime:

        def governed() -> None:
            parameters = dict(server.parameters)
            runtime.exec(f"{name}:{server.operation}", cwd=root, parameters=parameters).check()

        return asyncio.run(_measured(server, governed))


async def _measured(server: _Server, governed: Callable[[], None]) -> dict[str, object]:
    from mcp import Client, StdioServerParameters

    loop = asyncio.get_running_loop()
    command, *arguments = server.command
    started = StdioServerParameters(command=command, args=arguments)
    async with Client(started) as client:

        async def alone() -> None:
            await client.call_tool(server.operation, dict(server.parameters))

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
