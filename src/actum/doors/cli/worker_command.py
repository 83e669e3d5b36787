"""`actum worker`: carries out durable runs."""

from __future__ import annotations

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.runs_command import tell, until_signal


@click.command("worker", cls=command_table.Command)
@click.option(
    "--concurrency", type=click.IntRange(1, 64), default=1, metavar="N", help="Runs at a time."
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3_600),
    default=30.0,
    metavar="SECONDS",
    help="How long the current steps may take after SIGTERM.  [default: 30]",
)
@click.option("--once", is_flag=True, help="Carry out what is queued now, then end.")
def command(concurrency: int, grace: float, once: bool) -> int:
    """Carry out the queued runs of this project, and take over those of dead workers.

    On SIGTERM and Ctrl-C it takes no new run, finishes the current steps, hands its runs back and
    ends.
    """
    if once and concurrency > 1:
        raise click.UsageError(
            "--once carries out one run after the other: leave out --concurrency."
        )
    with command_table.open_runtime() as runtime:
        worker = runtime.runs.worker(concurrency=concurrency, on_event=tell)
        if once:
            worker.drain(until_signal(), grace)
            return exit_codes.SUCCESS
        terminal.aside("worker: waiting for runs")
        worker.serve(until=until_signal(), grace_s=grace)
    return exit_codes.SUCCESS
