"""A warm call of an MCP tool: through Actum, with an open server, and through the MCP library
alone. The same server, the same arguments; only Actum sandboxes, checks, records and signs. Each
call has new arguments; `repeated` makes the same call again.

Two servers: the one from npm that ADP-003 describes, and one of forty lines of the standard library
that does nothing, so that a call of it is all overhead.

The library is asynchronous. It is measured from its own event loop, and from another thread, which
hands each call to that loop and waits for the answer.

The module is not called `mcp`: its folder comes first in the module search path.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from measured import interleaved, ratios, summary

from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runtime import Runtime
from actum.store.keys import Keyring

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "mcp" / "notes"
ADP_003 = HERE.parent / "tests" / "unit" / "registry" / "data" / "ADP-003.yaml"
NPM = Path(sys.prefix) / "npm" / "node_modules"
FILESYSTEM = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
_ROUNDS = 200
_LIBRARY = "library alone"
_FILES = 1_000  #: more than the calls that a server gets


class _Server(NamedTuple):
    """One server, as both sides call it."""

    tool: Path  #: the folder of its tool
    command: list[str]
    operation: str
    parameters: Callable[[int], dict[str, str]]  #: of a call, by its number


def measure() -> dict[str, object]:
    root = Path(tempfile.mkdtemp(prefix="actum-bench-"))
    try:
        create(root, RunnerKind.LOCAL, by="user:bench", date="2026-11-15")
        nothing = ["/usr/bin/python3", "-I", "-S", str(EXAMPLE / "server" / "notes.py")]
        found: dict[str, object] = {
            "server_that_does_nothing": _called(root, _Server(EXAMPLE, nothing, "remember", _note)),
            "python": sys.version.split()[0],
        }
        node = shutil.which("node")
        if node is None or not NPM.exists():
            found["left_out"] = "server_of_files: scripts/npm-servers could not install it"
            return found
        shutil.copytree(NPM, root / "node_modules", copy_function=_link)
        adapters = root / "tools" / "mcp-filesystem" / "adapters"
        adapters.mkdir(parents=True)
        shutil.copy(ADP_003, adapters)
        for number in range(_FILES):
            (root / f"note-{number}.txt").write_text("two bottles of milk\n")
        files = _Server(
            HERE / "tools" / "mcp-filesystem",
            [node, str(root / FILESYSTEM), str(root)],
            "read_file",
            lambda number: {"path": str(root / f"note-{number % _FILES}.txt")},
        )
        return {"server_of_files": _called(root, files), **found}
    finally:
        shutil.rmtree(root)


def _note(number: int) -> dict[str, str]:
    return {"title": f"milk {number}", "text": "two bottles"}


def _link(source: str, target: str) -> None:
    """A hard link, or a copy on another file system."""
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

        def governed(parameters: dict[str, str]) -> None:
            runtime.exec(f"{name}:{server.operation}", cwd=root, parameters=parameters).check()

        return asyncio.run(_measured(server, governed))


async def _measured(server: _Server, governed: Callable[[dict[str, str]], None]) -> dict[str, Any]:
    from mcp import Client, StdioServerParameters

    loop = asyncio.get_running_loop()
    numbers = itertools.count(1)
    command, *arguments = server.command
    started = StdioServerParameters(command=command, args=arguments)
    async with Client(started) as client:

        async def alone() -> None:
            await client.call_tool(server.operation, server.parameters(next(numbers)))

        calls: dict[str, Callable[[], None]] = {
            "governed": lambda: governed(server.parameters(next(numbers))),
            "governed, repeated": lambda: governed(server.parameters(0)),
        }

        def from_a_thread() -> None:
            asyncio.run_coroutine_threadsafe(alone(), loop).result()

        from_the_loop = await _in_turn(alone, calls)
        from_threads = await loop.run_in_executor(
            None, lambda: interleaved({_LIBRARY: from_a_thread, **calls}, _ROUNDS)
        )
    return {
        name: {"results": rows, "ratios": ratios(rows, _LIBRARY)}
        for name, rows in (("from_the_loop", from_the_loop), ("from_a_thread", from_threads))
    }


async def _in_turn(
    alone: Callable[[], Awaitable[None]], calls: Mapping[str, Callable[[], None]]
) -> dict[str, dict[str, float]]:
    """All from the thread of the library's own loop, so that no call changes threads."""
    samples: dict[str, list[float]] = {name: [] for name in (_LIBRARY, *calls)}
    order, shuffle = list(samples), random.Random(0).shuffle
    for number in range(-1, _ROUNDS):
        shuffle(order)
        for name in order:
            began = time.perf_counter()
            if name in calls:
                calls[name]()
            else:
                await alone()
            if number >= 0:
                samples[name].append((time.perf_counter() - began) * 1000)
    return {name: summary(values) for name, values in samples.items()}
