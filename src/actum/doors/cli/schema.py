"""`actum schema`: the JSON Schema of a document, for editors and generators."""

from __future__ import annotations

import json
from importlib import resources

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words

_ROOMS = {
    "execution-contract": "actum.contract",
    "tool": "actum.registry",
    "adapter": "actum.registry",
}


@click.command("schema", cls=words.Command, short_help="The JSON Schema of a document.")
@click.argument("name", type=click.Choice(list(_ROOMS)), required=False)
def command(name: str | None) -> int:
    """Print the JSON Schema of that NAME; without one, the names."""
    if name is not None:
        say.document(_schema(name))
    elif words.wants_json():
        say.document({"schemas": list(_ROOMS)})
    else:
        for each in _ROOMS:
            say.line(each)
    return exit_codes.SUCCESS


def _schema(name: str) -> Json:
    file = resources.files(_ROOMS[name]).joinpath("schemas", f"{name}.json")
    return json.loads(file.read_text("utf-8"))
