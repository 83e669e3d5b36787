"""`actum work`: carries out a work file in the foreground, as a durable run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.contract_options import config_of, contract_options
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item_command import CODES
from actum.doors.cli.run_lines import MARKS
from actum.doors.cli.run_progress import RunProgress

if TYPE_CHECKING:
    from actum.runs.rehearsal import Rehearsal
    from actum.runs.work_done import WorkDone

#: Of several outcomes, the first of these decides the exit code.
_WORST = ("failure", "timeout", "denied", "success")
#: A run whose items decide the exit code: it failed because of them, or not at all.
_BY_ITEMS = (None, "ITEMS_NOT_SUCCEEDED")
_REFUSALS = ("CONTRACT_MISMATCH", "UNSUPPORTED_CONTRACT", "EXECUTION_CONTRACT_MISSING")


@click.command("work", cls=command_table.Command)
@click.argument("file", metavar="WORK.yaml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what each item would change; commit nothing.")
@click.option("--new", is_flag=True, help="Start over instead of continuing the last run.")
@contract_options
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    metavar="N",
    default=None,
    help="Items at work at the same time.  [default: twice the processors]",
)
def command(
    file: Path,
    dry_run: bool,
    new: bool,
    profile: str | None,
    fields: Sequence[str],
    at_once: int | None,
) -> int:
    """Run a graph of work items, level by level. Each is all there with a receipt, or not at all.

    The graph is a durable run (`actum runs`). If its last run did not complete, because it failed,
    was cancelled or was killed, the same command continues it: committed items are not repeated.
    Ctrl-C ends the items at work and begins no other; items that were committed stay committed.

    \b
    items:
      - {id: parse, agent_id: agent-1, description: Write the parser}
      - {id: docs, agent_id: agent-2, description: Describe it, dependencies: [parse]}
    """
    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    if dry_run and new:
        raise click.UsageError("--dry-run makes no run: leave out --new.")
    from actum.runs.durable_runs import RunMismatch

    with command_table.open_runtime() as runtime, interrupted_by_signals():
        config = config_of(profile, fields)
        if dry_run:
            return _show_rehearsal(runtime.runs.rehearse(file, config=config, at_once=at_once))
        try:
            with hearing() as hear:
                done = runtime.work_file(
                    file, config=config, at_once=at_once, new=new, on_event=hear
                )
        except RunMismatch as mismatch:
            return show_mismatch(mismatch, "--new starts over.")
    if command_table.wants_json():
        terminal.document(done.document())
    else:
        _sum_up(done)
    return _code_of(done)


def show_mismatch(mismatch: Any, more: str = "") -> int:
    """The difference between a persisted contract and a requested one; nothing was changed."""
    if command_table.wants_json():
        terminal.document(mismatch.document())
    else:
        for line in str(mismatch).splitlines():
            terminal.aside(line)
        if more:
            terminal.aside(more)
    return exit_codes.REFUSED


@contextmanager
def hearing(prefix: str = "") -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Shows the events of a run as they come, unless the answer is one document."""
    if command_table.wants_json():
        yield lambda _event: None
        return
    with RunProgress(prefix) as progress:
        yield progress


def _sum_up(done: WorkDone) -> None:
    items = {name for level in done.levels for name in level}
    committed = sum(
        result.status == "success" for name, result in done.results.items() if name in items
    )
    cancelled = "Cancelled: " if done.cancelled else ""
    blocked = f", {len(done.blocked)} blocked"
    terminal.line(f"{cancelled}{committed} of {len(items)} work items committed{blocked}.")
    for name, code in done.unstarted.items():
        terminal.line(f"{name} did not start: {code}")
    if done.code not in (*_BY_ITEMS, "CANCELLED"):
        terminal.line(f"run {done.run_id} {done.status.value}: {done.code}")
    else:
        terminal.line(f"run {done.run_id} {done.status.value}")


def _code_of(done: WorkDone) -> int:
    if done.cancelled:
        return exit_codes.CANCELLED
    if done.code in _REFUSALS:
        return exit_codes.REFUSED
    if done.code not in _BY_ITEMS or done.unstarted:
        return exit_codes.FAILED
    return _code(result.status.value for result in done.results.values())


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
                f"{MARKS[result.status.value]} {name} would end as {result.status}{reason}"
            )
            for change in result.changes:
                terminal.line(f"  {change['action']} {change['path']}")
                for line in str(change["diff"]).splitlines():
                    terminal.line(f"    {line}")
        for name, needs in rehearsal.blocked.items():
            terminal.line(f"{name} would wait for {', '.join(needs)}")
    return _code(result.status.value for result in rehearsal.results.values())
