"""`actum exec`: its options. What it does is in `carry_out`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from actum.doors.cli import words
from actum.doors.cli.asking import asking_options


@click.command("exec", cls=words.Command, short_help="Carry out one execution.")
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
    help="What becomes of changed files: brought in, left for `actum diff ID`, or dropped.",
)
@click.option(
    "--wait",
    is_flag=False,
    flag_value="1h",
    metavar="[TIME]",
    help="Wait for an approval, if one is needed: --wait, or --wait=10m.",
)
def command(
    *, save: Path | None, whose_code: str, wait: str | None, changes: str, **given: Any
) -> int:
    """Carry out one execution: TOOL is a tool id or name.

    \b
    actum exec shell --stdin script.sh
    actum exec ripgrep -p pattern='fn \\w+' -p path=src
    actum exec git:log -- --oneline
    actum exec -f contract.yaml
    """
    from actum.doors.cli.carry_out import carry_out

    return carry_out(
        home=words.given_home(),
        session=words.given_session(),
        as_json=words.wants_json(),
        save=save,
        whose_code=whose_code,
        wait=wait,
        changes="hold" if changes == "ask" else changes,
        **given,
    )
