"""`actum exec`: its options. `carry_out` runs it."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import command_table
from actum.doors.cli.request_options import asking_options, running_options


@click.command("exec", cls=command_table.ToolCommand)
@asking_options
@running_options
def command(*, changes: str, **given: Any) -> int:
    """Run one execution: TOOL is a tool id or name.

    A tool that runs a program takes the program from stdin if stdin is a pipe or a file and there
    are no ARGS, from FILE with --stdin FILE, and otherwise from the file that the first of ARGS
    names.

    \b
    actum exec python report.py
    echo 'print(6 * 7)' | actum exec python
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
        changes="hold" if changes == "ask" else changes,
        **given,
    )
