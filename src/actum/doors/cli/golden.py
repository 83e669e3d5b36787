"""`actum golden`: outputs that are expected. Only these commands change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.asked import asked, require_sense
from actum.doors.cli.asking import asking_options

if TYPE_CHECKING:
    from actum.store.golden import Golden


@click.group("golden", cls=words.Group)
def command() -> None:
    """Outputs that are expected of a tool for certain inputs."""


@command.command("record")
@asking_options
@click.option("--by", required=True, metavar="WHO", help="Who says that it is right.")
@click.option("--why", required=True, metavar="TEXT", help="What makes it right.")
@click.option("--replace", is_flag=True, help="Another one is kept for these inputs: change it.")
def record(*, by: str, why: str, replace: bool, **given: Any) -> int:
    """Carry out what `actum exec` takes, and keep what it says as the expected output.

    Asks for level D2 by itself; only a run that succeeded and was the same twice is kept.
    """
    from actum.doors.cli.carry_out import show

    require_sense(**given)
    with words.open_runtime() as runtime:
        contract = asked(runtime, **given)
        result, golden = runtime.record_golden(contract, by=by, why=why, replace=replace)
    if golden is None:
        show(result, as_json=words.wants_json())
        return exit_codes.OF_OUTCOME[result.outcome]
    _show(golden)
    return exit_codes.SUCCESS


@command.command("list")
def list_golden() -> int:
    """What is kept."""
    with words.open_runtime() as runtime:
        kept = [runtime.rooms.golden.find(key) for key in runtime.rooms.golden.every()]
    if words.wants_json():
        say.document({"golden": [golden.document() for golden in kept]})
    elif not kept:
        say.line("No golden output is kept.")
    else:
        rows = [(item.key[:12], item.tool, item.adapter, item.by, item.at) for item in kept]
        say.table(("KEY", "TOOL", "ADAPTER", "BY", "AT"), rows)
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("key")
def show_golden(key: str) -> int:
    """One of them; KEY may be its beginning."""
    with words.open_runtime() as runtime:
        _show(runtime.rooms.golden.find(key))
    return exit_codes.SUCCESS


@command.command("remove")
@click.argument("key")
def remove_golden(key: str) -> int:
    """Keep it no longer; executions that expect it are refused from now on."""
    with words.open_runtime() as runtime:
        found = runtime.rooms.golden.find(key)
        runtime.rooms.golden.remove(found.key)
    if words.wants_json():
        say.document({"removed": found.key})
    else:
        say.line(f"Removed {found.key}.")
    return exit_codes.SUCCESS


def _show(golden: Golden) -> None:
    if words.wants_json():
        say.document(golden.document())
        return
    for name, value in golden.document().items():
        if name in ("stdout", "stderr"):
            content: bytes = getattr(golden, name)
            say.line(f"{name}: {len(content)} bytes")
            for line in content.decode(errors="backslashreplace").splitlines()[:40]:
                say.line(f"  {line}")
        else:
            say.line(f"{name}: {value}")
