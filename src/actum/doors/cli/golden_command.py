"""`actum golden`: expected outputs. Only these commands change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, table, terminal
from actum.doors.cli.request_from_options import asked, require_sense
from actum.doors.cli.request_options import asking_options

if TYPE_CHECKING:
    from actum.store.golden_outputs import Golden


@click.group("golden", cls=command_table.Group)
def command() -> None:
    """Expected outputs of a tool for given inputs."""


@command.command("record")
@asking_options
@click.option("--by", required=True, metavar="WHO", help="Who confirms the output.")
@click.option("--why", required=True, metavar="TEXT", help="Why the output is correct.")
@click.option("--replace", is_flag=True, help="Replace the one stored for these inputs.")
def record(*, by: str, why: str, replace: bool, **given: Any) -> int:
    """Run a request with the options of `actum exec`, and store its output as the expected output.

    Requests level D2; only an execution that succeeded and was the same twice is stored.
    """
    from actum.doors.cli.exec_output import show

    require_sense(**given)
    with command_table.open_runtime() as runtime:
        contract = asked(runtime, **given)
        result, golden = runtime.record_golden(contract, by=by, why=why, replace=replace)
    if golden is None:
        show(result, as_json=command_table.wants_json())
        return exit_codes.OF_OUTCOME[result.outcome]
    _show(golden)
    return exit_codes.SUCCESS


@command.command("list")
def list_golden() -> int:
    """List the expected outputs."""
    with command_table.open_runtime() as runtime:
        kept = [runtime.services.golden.find(key) for key in runtime.services.golden.every()]
    if command_table.wants_json():
        terminal.document({"golden": [golden.document() for golden in kept]})
    elif not kept:
        terminal.line("No expected output is stored.")
    else:
        rows = [(item.key[:12], item.tool, item.adapter, item.by, item.at) for item in kept]
        table.show(("KEY", "TOOL", "ADAPTER", "BY", "AT"), rows)
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("key")
def show_golden(key: str) -> int:
    """Show one expected output; KEY may be a prefix."""
    with command_table.open_runtime() as runtime:
        _show(runtime.services.golden.find(key))
    return exit_codes.SUCCESS


@command.command("remove")
@click.argument("key")
def remove_golden(key: str) -> int:
    """Remove an expected output; executions that expect it are refused from now on."""
    with command_table.open_runtime() as runtime:
        found = runtime.services.golden.find(key)
        runtime.services.golden.remove(found.key)
    if command_table.wants_json():
        terminal.document({"removed": found.key})
    else:
        terminal.line(f"Removed {found.key}.")
    return exit_codes.SUCCESS


def _show(golden: Golden) -> None:
    if command_table.wants_json():
        terminal.document(golden.document())
        return
    for name, value in golden.document().items():
        if name in ("stdout", "stderr"):
            content: bytes = getattr(golden, name)
            terminal.line(f"{name}: {len(content)} bytes")
            for line in content.decode(errors="backslashreplace").splitlines()[:40]:
                terminal.line(f"  {line}")
        else:
            terminal.line(f"{name}: {value}")
