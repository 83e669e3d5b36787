"""`actum new`: writes a commented file to start from, which passes validation as it is.

Nothing that exists is overwritten, and nothing written here may run before it is approved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, terminal

if TYPE_CHECKING:
    from actum.registry.model import Tool

_REVIEW = timedelta(days=180)


@click.group("new", cls=command_table.Group)
def command() -> None:
    """Start a contract, a tool or an adapter from a commented file."""


@command.command("contract")
@click.argument("file", type=click.Path(path_type=Path), default="contract.yaml", metavar="[FILE]")
def new_contract(file: Path) -> int:
    """Write a contract for `actum exec -f`."""
    return _write({file: _start("contract", {"FILE": str(file)})}, f"actum exec -f {file}")


@command.command("tool")
@click.argument("name")
@click.option("--id", "tool_id", metavar="ID", help="Otherwise the next free TL-number.")
def new_tool(name: str, tool_id: str | None) -> int:
    """Write a tool folder below tools/, with one adapter."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        raise click.UsageError(
            f"NAME {name!r}: lower-case letters, digits, dots, dashes, underscores."
        )
    with command_table.open_runtime() as runtime:
        registry, root = runtime.services.registry, runtime.settings.root
        tools = registry.tools()
        adapters = [each.adapter_id for tool in tools for each in registry.adapters(tool)]
        runners = [kind.value for kind in runtime.settings.runners]
    folder = root / "tools" / name
    values = _common() | {
        "NAME": name,
        "TOOL_ID": tool_id or _free("TL", [tool.tool_id for tool in tools]),
        "RUNNER": runners[0] if runners else "docker",
        "ADAPTER_ID": _free("ADP", adapters),
        "ADAPTER": name,
        "PROGRAM": "wc",
        "BASE_ARGS": '["-l"]',
        "MAPPING": '{file: "{file}"}',
        "STATUS": "active",
    }
    files = {
        folder / "tool.yaml": _start("tool", values),
        folder / "adapters" / f"{name}.yaml": _start("adapter", values),
        folder
        / "README.md": f"# {name} ({values['TOOL_ID']})\n\nSay what it is for and what it needs.\n",
        folder / "CHANGELOG.md": f"# Changelog of {name}\n\n## 0.1.0\n\nFirst version.\n",
    }
    return _write(files, f"actum tools propose {os.path.relpath(folder)}")


@command.command("adapter")
@click.argument("tool", metavar="TOOL")
@click.argument("name")
def new_adapter(tool: str, name: str) -> int:
    """Add an adapter to a tool, experimental until you change its status."""
    with command_table.open_runtime() as runtime:
        registry = runtime.services.registry
        found = registry.find_tool(tool)
        taken = [each.adapter_id for other in registry.tools() for each in registry.adapters(other)]
    values = _common() | {
        "TOOL_ID": found.tool_id,
        "ADAPTER_ID": _free("ADP", taken),
        "ADAPTER": name,
        "PROGRAM": _program(found),
        "BASE_ARGS": "[]",
        "MAPPING": "{}",
        "STATUS": "experimental",
    }
    file = Path(found.folder) / "adapters" / f"{name}.yaml"
    return _write(
        {file: _start("adapter", values)}, f"actum tools propose {os.path.relpath(found.folder)}"
    )


def _program(tool: Tool) -> str:
    return next((command.split()[0] for command in tool.scope.commands), tool.name)


def _common() -> dict[str, str]:
    from actum.settings import login_of

    today: date = datetime.now(UTC).date()
    return {
        "OWNER": login_of(os.environ),
        "TODAY": today.isoformat(),
        "LATER": (today + _REVIEW).isoformat(),
    }


def _free(prefix: str, taken: Iterable[str]) -> str:
    numbers = [int(each.split("-")[1]) for each in taken if re.fullmatch(rf"{prefix}-\d+", each)]
    return f"{prefix}-{max([99, *numbers]) + 1:03}"


def _start(name: str, values: Mapping[str, str]) -> str:
    text = resources.files("actum.doors.cli").joinpath("starts", f"{name}.yaml").read_text("utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def _write(files: Mapping[Path, str], following: str) -> int:
    there = [str(file) for file in files if file.exists()]
    if there:
        raise click.UsageError(f"{', '.join(there)} exists already; choose another name.")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if command_table.wants_json():
        terminal.document({"made": [str(file) for file in files], "next": following})
        return exit_codes.SUCCESS
    for file in files:
        terminal.line(f"Made {os.path.relpath(file)}")
    terminal.line(f"Next: {following}")
    return exit_codes.SUCCESS
