"""`actum adapters`: lists and describes adapters, one disclosure level at a time."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import command_table, exit_codes, table, terminal

_refresh = click.option(
    "--refresh", is_flag=True, help="Read the tools again instead of using the cache."
)


@click.group("adapters", cls=command_table.Group)
def command() -> None:
    """List and describe adapters."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include adapters that may not be called.")
@_refresh
def list_adapters(*, everything: bool, refresh: bool) -> int:
    """List every adapter that may be called, at level 0: enough to list."""
    with command_table.open_runtime() as runtime:
        if refresh:
            runtime.discovery.refresh()
        discovery = runtime.discovery
        return _listed(discovery.everything() if everything else discovery.adapters())


@command.command("show")
@click.argument("adapter_id", metavar="ID")
@click.option(
    "--level",
    type=click.IntRange(0, 3),
    metavar="N",
    default=2,
    show_default=True,
    help="0 to list, 1 to choose, 2 to execute, 3 with schema and examples.",
)
@click.option("--tokens", is_flag=True, help="Show about how many tokens each level costs a model.")
def show_adapter(adapter_id: str, level: int, *, tokens: bool) -> int:
    """Describe one adapter at a level of detail."""
    with command_table.open_runtime() as runtime:
        discovery = runtime.discovery
        shown = discovery.show(adapter_id, level)
        refusal = discovery.refusal(shown["tool_id"], adapter_id)
        costs = discovery.tokens(adapter_id)
    if refusal is not None:
        terminal.aside(f"It may not be called now: {refusal}")
    if tokens:
        shown = {"adapter_id": adapter_id, "tokens": dict(enumerate(costs))}
    if command_table.wants_json():
        terminal.document(shown)
        return exit_codes.SUCCESS
    import yaml

    terminal.block(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
    if not tokens:
        terminal.aside(f"level {level}: about {costs[level]} tokens")
    return exit_codes.SUCCESS


@command.command("search")
@click.argument("wanted", nargs=-1, required=True, metavar="WORDS...")
@_refresh
def search_adapters(wanted: tuple[str, ...], *, refresh: bool) -> int:
    """Find adapters that may be called and mention every word, at level 1: enough to choose."""
    with command_table.open_runtime() as runtime:
        if refresh:
            runtime.discovery.refresh()
        return _listed(runtime.discovery.search(wanted))


@command.command("refresh")
def refresh_adapters() -> int:
    """Clear the cache and read the tools again."""
    with command_table.open_runtime() as runtime:
        count = runtime.discovery.refresh()
    if command_table.wants_json():
        terminal.document({"adapters": count})
    else:
        terminal.line(f"{count} adapters may be called.")
    return exit_codes.SUCCESS


def _listed(found: list[dict[str, Any]]) -> int:
    from actum.registry.disclosure import tokens

    cost = sum(map(tokens, found))
    if command_table.wants_json():
        terminal.document({"adapters": found, "tokens": cost})
        return exit_codes.SUCCESS
    if not found:
        terminal.line("No adapter found. `actum adapters list --all` lists all of them.")
        return exit_codes.SUCCESS
    summarised = "summary" in found[0]
    table.show(
        ["ID", "NAME", "TOOL", "TYPE"] + (["DOES"] if summarised else []),
        [
            [
                *(each[key] for key in ("adapter_id", "name", "tool_id", "type")),
                *([each["summary"]["description"].strip()] if summarised else []),
            ]
            for each in found
        ],
    )
    terminal.aside(f"{len(found)} adapters, about {cost} tokens at level {int(summarised)}")
    return exit_codes.SUCCESS
