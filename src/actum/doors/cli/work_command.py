"""`actum work`: runs a graph of work items in the foreground."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item_command import CODES

if TYPE_CHECKING:
    from actum.work.graph import Rehearsal, WorkDone

_MARKS = {"success": "✅", "failure": "❌", "denied": "⛔", "timeout": "⏱"}
#: Of several outcomes, the first of these decides the exit code.
_WORST = ("failure", "timeout", "denied", "success")


@click.command("work", cls=command_table.Command, short_help="A graph of work items.")
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

    Ctrl-C ends the items at work and begins no other; items that were committed stay committed.

    \b
    items:
      - {id: parse, agent_id: agent-1, description: Write the parser}
      - {id: docs, agent_id: agent-2, description: Describe it, dependencies: [parse]}
    """
    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    from actum.work.dag import read_work
    from actum.work.graph import GraphInterrupted, WorkGraph

    with command_table.open_runtime() as runtime, interrupted_by_signals():
        items = read_work(file)
        quiet = dry_run or command_table.wants_json()
        on_event = (lambda _event: None) if quiet else _tell
        work_graph = WorkGraph(
            runtime.work_items, on_event, at_once=at_once or 2 * (os.cpu_count() or 1)
        )
        if dry_run:
            return _show_rehearsal(work_graph.rehearse(items))
        try:
            done = work_graph.carry_out(items)
        except GraphInterrupted as interrupt:
            done = interrupt.done
    if command_table.wants_json():
        terminal.document(done.document())
    else:
        _sum_up(done)
    if done.cancelled:
        return exit_codes.CANCELLED
    return _code(result.status.value for result in done.results.values())


def _tell(event: Mapping[str, Any]) -> None:
    """Print one line for each event."""
    name, at = event.get("item", ""), event["at"]
    if at == "level":
        terminal.aside(f"level {event['level']}: {', '.join(event['items'])}")
    elif at == "called":
        terminal.aside(
            f"  {name}: {event['tool']} {event['outcome']} after {event['elapsed_ms']} ms"
        )
    elif at == "conflict":
        terminal.aside(f"  {name}: {event['why']} Retrying on the current state.")
    elif at == "blocked":
        terminal.aside(f"  {name}: waits for {', '.join(event['waits_for'])}")
    elif at == "ended":
        reason = f": {event['reason']}" if event["reason"] else ""
        terminal.aside(
            f"{_MARKS[event['status']]} {name} {event['status']} · {event['files']} file(s) ·"
            f" {event['elapsed_ms']} ms · receipt {event['receipt_id']}{reason}"
        )


def _sum_up(done: WorkDone) -> None:
    committed = sum(result.status == "success" for result in done.results.values())
    total = sum(map(len, done.levels))
    cancelled = "Cancelled: " if done.cancelled else ""
    blocked = f", {len(done.blocked)} blocked"
    terminal.line(f"{cancelled}{committed} of {total} work items committed{blocked}.")


def _code(ends: Iterable[str]) -> int:
    found = set(ends)
    return CODES[next((status for status in _WORST if status in found), "failure")]


def _show_rehearsal(rehearsal: Rehearsal) -> int:
    if command_table.wants_json():
        terminal.document(rehearsal.document())
    else:
        for name, result in rehearsal.results.items():
            reason = f": {result.reason}" if result.reason else ""
            terminal.line(
                f"{_MARKS[result.status.value]} {name} would end as {result.status}{reason}"
            )
            for change in result.changes:
                terminal.line(f"  {change['action']} {change['path']}")
                for line in str(change["diff"]).splitlines():
                    terminal.line(f"    {line}")
        for name, needs in rehearsal.blocked.items():
            terminal.line(f"{name} would wait for {', '.join(needs)}")
    return _code(result.status.value for result in rehearsal.results.values())
