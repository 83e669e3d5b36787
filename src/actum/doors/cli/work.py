"""`actum work`: a graph of work items, now, in the foreground."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import say, words
from actum.doors.cli.item import CODES

if TYPE_CHECKING:
    from actum.agents.foreman import WorkDone
    from actum.wiring import Runtime

_MARKS = {"success": "✅", "failure": "❌", "denied": "⛔", "timeout": "⏱"}
#: Of several ends, the one that the exit code tells.
_WORST = ("failure", "timeout", "denied", "success")


@click.command("work", cls=words.Command, short_help="A graph of work items.")
@click.argument("file", metavar="WORK.yaml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what each item would change; commit nothing.")
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    metavar="N",
    default=None,
    help="Items at work at the same time.  [default: twice the processors]",
)
def command(file: Path, dry_run: bool, at_once: int | None) -> int:
    """Run a graph of work items, level by level. Each is all there with a receipt, or not at all.

    \b
    items:
      - {id: parse, agent_id: agent-1, description: Write the parser}
      - {id: docs, agent_id: agent-2, description: Describe it, dependencies: [parse]}
    """
    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    from actum.agents.foreman import Foreman
    from actum.engine.work.dag import read_work

    with words.open_runtime() as runtime:
        items = read_work(file)
        if dry_run:
            return _rehearse(runtime, items)
        told = (lambda _event: None) if words.wants_json() else _tell
        foreman = Foreman(runtime.workshop, told, at_once=at_once or 2 * (os.cpu_count() or 1))
        done = foreman.carry_out(items)
    if words.wants_json():
        say.document(done.document())
    else:
        _sum_up(done)
    return _code(done)


def _tell(event: Mapping[str, Any]) -> None:
    """One line for each thing that happens, as it happens."""
    name, at = event.get("item", ""), event["at"]
    if at == "level":
        say.aside(f"level {event['level']}: {', '.join(event['items'])}")
    elif at == "called":
        say.aside(f"  {name}: {event['tool']} {event['outcome']} after {event['elapsed_ms']} ms")
    elif at == "conflict":
        say.aside(f"  {name}: {event['why']} Once more, on what there is now.")
    elif at == "blocked":
        say.aside(f"  {name}: waits for {', '.join(event['waits_for'])}")
    elif at == "ended":
        reason = f": {event['reason']}" if event["reason"] else ""
        say.aside(
            f"{_MARKS[event['status']]} {name} {event['status']} · {event['files']} file(s) ·"
            f" {event['elapsed_ms']} ms · receipt {event['receipt_id']}{reason}"
        )


def _sum_up(done: WorkDone) -> None:
    committed = sum(result.status == "success" for result in done.results.values())
    total = len(done.results) + len(done.blocked)
    say.line(f"{committed} of {total} work items committed, {len(done.blocked)} blocked.")


def _code(done: WorkDone) -> int:
    found = {result.status.value for result in done.results.values()}
    worst = next((status for status in _WORST if status in found), "failure")
    return CODES[worst]


def _rehearse(runtime: Runtime, items: tuple[Any, ...]) -> int:
    from actum.engine.work.dag import resolve_dependencies

    ordered = [item for level in resolve_dependencies(items) for item in level]
    told = {}
    for item, answer in runtime.workshop.rehearse(ordered):
        told[item.id] = answer
        if not words.wants_json():
            reason = f": {answer['reason']}" if answer["reason"] else ""
            say.line(
                f"{_MARKS[answer['status']]} {item.id} would end as {answer['status']}{reason}"
            )
            for change in answer["changes"]:
                say.line(f"  {change['action']} {change['path']}")
                for line in change["diff"].splitlines():
                    say.line(f"    {line}")
    if words.wants_json():
        say.document({"dry_run": True, "items": told})
    found = {answer["status"] for answer in told.values()}
    return CODES[next((status for status in _WORST if status in found), "success")]
