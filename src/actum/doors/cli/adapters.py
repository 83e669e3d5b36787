"""`actum adapters`: how tools are spoken to, told level by level and no further."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import exit_codes, say, words

_refresh = click.option(
    "--refresh", is_flag=True, help="Read the tools again instead of what was kept of them."
)


@click.group("adapters", cls=words.Group)
def command() -> None:
    """How tools are spoken to, told level by level."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what may not be called.")
@_refresh
def list_adapters(*, everything: bool, refresh: bool) -> int:
    """Every adapter that may be called, at level 0: enough to list."""
    with words.open_runtime() as runtime:
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
@click.option("--tokens", is_flag=True, help="About how many tokens each level costs a model.")
def show_adapter(adapter_id: str, level: int, *, tokens: bool) -> int:
    """One adapter at a level of detail."""
    with words.open_runtime() as runtime:
        discovery = runtime.discovery
        told = discovery.show(adapter_id, level)
        refusal = discovery.refusal(told["tool_id"], adapter_id)
        costs = discovery.tokens(adapter_id)
    if refusal is not None:
        say.aside(f"It may not be called now: {refusal}")
    if tokens:
        told = {"adapter_id": adapter_id, "tokens": dict(enumerate(costs))}
    if words.wants_json():
        say.document(told)
        return exit_codes.SUCCESS
    import yaml

    say.block(yaml.safe_dump(told, sort_keys=False, allow_unicode=True).rstrip())
    if not tokens:
        say.aside(f"level {level}: about {costs[level]} tokens")
    return exit_codes.SUCCESS


@command.command("search")
@click.argument("wanted", nargs=-1, required=True, metavar="WORDS...")
@_refresh
def search_adapters(wanted: tuple[str, ...], *, refresh: bool) -> int:
    """Adapters that may be called and mention every word, at level 1: enough to choose."""
    with words.open_runtime() as runtime:
        if refresh:
            runtime.discovery.refresh()
        return _listed(runtime.discovery.search(wanted))


@command.command("refresh")
def refresh_adapters() -> int:
    """Forget what was kept of the tools and read them again."""
    with words.open_runtime() as runtime:
        count = runtime.discovery.refresh()
    if words.wants_json():
        say.document({"adapters": count})
    else:
        say.line(f"{count} adapters may be called.")
    return exit_codes.SUCCESS


def _listed(found: list[dict[str, Any]]) -> int:
    from actum.registry.disclosure import tokens

    cost = sum(map(tokens, found))
    if words.wants_json():
        say.document({"adapters": found, "tokens": cost})
        return exit_codes.SUCCESS
    if not found:
        say.line("There is none. `actum adapters list --all` shows what there is.")
        return exit_codes.SUCCESS
    summarised = "summary" in found[0]
    say.table(
        ["ID", "NAME", "TOOL", "TYPE"] + (["DOES"] if summarised else []),
        [
            [
                *(each[key] for key in ("adapter_id", "name", "tool_id", "type")),
                *([each["summary"]["description"].strip()] if summarised else []),
            ]
            for each in found
        ],
    )
    say.aside(f"{len(found)} adapters, about {cost} tokens at level {int(summarised)}")
    return exit_codes.SUCCESS
