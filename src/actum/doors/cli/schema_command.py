"""`actum schema`: the JSON Schema of a document, for editors and generators."""

from __future__ import annotations

import json
from importlib import resources

import click

from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, terminal

#: Where each is: its room, and its file there.
_SCHEMAS = {
    "execution-contract": ("actum.contract", "execution-contract"),
    "tool": ("actum.registry", "tool"),
    "adapter": ("actum.registry", "adapter"),
    "receipt": ("actum.evidence", "execution-receipt-v1"),
    "work-receipt": ("actum.evidence", "work-receipt-v1"),
    "run-receipt": ("actum.evidence", "run-receipt-v1"),
}


@click.command("schema", cls=command_table.Command)
@click.argument("name", type=click.Choice(list(_SCHEMAS)), required=False)
def command(name: str | None) -> int:
    """Print the JSON Schema NAME; without a NAME, list the names."""
    if name is not None:
        terminal.document(_schema(name))
    elif command_table.wants_json():
        terminal.document({"schemas": list(_SCHEMAS)})
    else:
        for each in _SCHEMAS:
            terminal.line(each)
    return exit_codes.SUCCESS


def _schema(name: str) -> Json:
    room, stem = _SCHEMAS[name]
    file = resources.files(room).joinpath("schemas", f"{stem}.json")
    return json.loads(file.read_text("utf-8"))
