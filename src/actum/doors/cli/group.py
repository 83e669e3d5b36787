"""The command line as click knows it: one group, whose commands are imported when invoked."""

from __future__ import annotations

import click

from actum import __version__
from actum.doors.cli import command_table
from actum.doors.cli.main import COMMANDS


@click.command(
    cls=command_table.LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failed, 2 usage or malformed, 3 refused, 4 timed out, 5 killed"
    " by a limit, 130 cancelled, 70 fault of Actum.",
)
@click.version_option(__version__, "--version", message="actum %(version)s")
def cli() -> None:
    """Run tools for agents under a written contract, and prove what was done."""
