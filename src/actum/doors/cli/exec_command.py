"""`actum exec`: its options. `carry_out` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from actum.doors.cli import command_table
from actum.doors.cli.request_options import asking_options


@click.command("exec", cls=command_table.Command, short_help="Run one execution.")
@asking_options
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the contract for `exec -f` instead of running it.",
)
@click.option(
    "--exit-code",
    "whose_code",
    type=click.Choice(["actum", "tool"]),
    default="actum",
    help="Whose exit code to return.",
)
@click.option(
    "--overlay",
    "changes",
    type=click.Choice(["commit", "ask", "discard"]),
    default="commit",
    help="Changed files are committed, left for `actum diff ID`, or discarded.",
)
@click.option(
    "--wait",
    is_flag=False,
    flag_value="1h",
    metavar="[TIME]",
    help="Wait for an approval, if one is needed: --wait, or --wait=10m.",
)
@click.option(
    "--raw", is_flag=True, help="On a terminal, keep all control sequences of the tool's output."
)
def command(
    *, save: Path | None, whose_code: str, wait: str | None, changes: str, raw: bool, **given: Any
) -> int:
    """Run one execution: TOOL is a tool id or name.

    \b
    actum exec shell --stdin script.sh
    actum exec ripgrep -p pattern='fn \\w+' -p path=src
    actum exec git:log -- --oneline
    actum exec -f contract.yaml
    """
    from actum.doors.cli.exec_output import carry_out

    return carry_out(
        home=command_table.given_home(),
        session=command_table.given_session(),
        as_json=command_table.wants_json(),
        save=save,
        whose_code=whose_code,
        wait=wait,
        changes="hold" if changes == "ask" else changes,
        raw=raw,
        **given,
    )
