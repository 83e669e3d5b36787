"""`actum schema`: the JSON Schema of a document, for editors and generators."""

from __future__ import annotations

import json
from importlib import resources

import click

from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, terminal

_ROOMS = {
    "execution-contract": "actum.contract",
    "tool": "actum.registry",
    "adapter": "actum.registry",
}


@click.command("schema", cls=command_table.Command, short_help="The JSON Schema of a document.")
@click.argument("name", type=click.Choice(list(_ROOMS)), required=False)
def command(name: str | None) -> int:
    """Print the JSON Schema NAME; without a NAME, list the names."""
    if name is not None:
        terminal.document(_schema(name))
    elif command_table.wants_json():
        terminal.document({"schemas": list(_ROOMS)})
    else:
        for each in _ROOMS:
            terminal.line(each)
    return exit_codes.SUCCESS


def _schema(name: str) -> Json:
    file = resources.files(_ROOMS[name]).joinpath("schemas", f"{name}.json")
    return json.loads(file.read_text("utf-8"))
