"""`actum adapters`: how tools are spoken to, told level by level and no further."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words
from actum.errors import Refused

if TYPE_CHECKING:
    from actum.registry.model import Adapter, Tool
    from actum.registry.registry import Registry


@click.group("adapters", cls=words.Group)
def command() -> None:
    """How tools are spoken to, told level by level."""


@command.command("list")
def list_adapters() -> int:
    """Every adapter, at level 0: enough to list."""
    return _listed(0, lambda _told: True)


@command.command("show")
@click.argument("adapter_id", metavar="ID")
@click.option(
    "--level",
    type=click.IntRange(0, 3),
    default=2,
    show_default=True,
    help="0 to list, 1 to choose, 2 to execute, 3 with schema and examples.",
)
def show_adapter(adapter_id: str, level: int) -> int:
    """One adapter at a level of detail."""
    from actum.registry.disclosure import disclose

    with words.open_runtime() as runtime:
        for tool, adapter in _all(runtime.rooms.registry):
            if adapter.adapter_id == adapter_id:
                told = disclose(adapter, tool, level)
                break
        else:
            raise Refused(
                "ADAPTER_UNKNOWN",
                f"There is no adapter {adapter_id}.",
                remedy="`actum adapters list` shows what there is.",
            )
    if words.wants_json():
        say.document(told)
        return exit_codes.SUCCESS
    import yaml

    say.line(yaml.safe_dump(told, sort_keys=False, allow_unicode=True).rstrip())
    return exit_codes.SUCCESS


@command.command("search")
@click.argument("wanted", nargs=-1, required=True, metavar="WORDS...")
def search_adapters(wanted: tuple[str, ...]) -> int:
    """Adapters that mention every word, at level 1: enough to choose."""
    return _listed(
        1, lambda told: all(word.lower() in str(list(_texts(told))).lower() for word in wanted)
    )


def _listed(level: int, wanted: Callable[[Json], bool]) -> int:
    from actum.registry.disclosure import disclose

    with words.open_runtime() as runtime:
        told = [disclose(adapter, tool, level) for tool, adapter in _all(runtime.rooms.registry)]
    found = [each for each in told if wanted(each)]
    if words.wants_json():
        say.document({"adapters": found})
        return exit_codes.SUCCESS
    if not found:
        say.line("There is none. `actum adapters list` shows what there is.")
        return exit_codes.SUCCESS
    heads = ["ID", "NAME", "TOOL", "TYPE"] + (["DOES"] if level else [])
    say.table(
        heads,
        [
            [
                *(each[key] for key in ("adapter_id", "name", "tool_id", "type")),
                *([each["summary"]["description"].strip()] if level else []),
            ]
            for each in found
        ],
    )
    return exit_codes.SUCCESS


def _all(registry: Registry) -> list[tuple[Tool, Adapter]]:
    return [(tool, adapter) for tool in registry.tools() for adapter in registry.adapters(tool)]


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)
