"""`actum sh`: a shell script or a command, in the words of the command line."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import command_table
from actum.doors.cli.light_exec import script_words
from actum.doors.cli.request_options import running_options, script_options


@click.command(
    "sh",
    cls=command_table.Command,
    # Options of Actum come before the first word: the others belong to the command.
    context_settings={"allow_interspersed_args": False},
)
@script_options
@running_options
def command(*, words: tuple[str, ...], changes: str, **given: Any) -> int:
    """Run a script, or a command and its arguments, with the `shell` tool.

    One word is a script. Several are one command and its arguments: each stays one word. Without
    words, the script is read from stdin. Options of Actum come first.

    \b
    actum sh 'ls -la | wc -l'
    actum sh ls -la 'my file'
    actum sh --timeout 5s --json make test
    actum sh < script.sh
    """
    from actum.doors.cli.exec_output import carry_out

    return carry_out(
        home=command_table.given_home(),
        session=command_table.given_session(),
        as_json=command_table.wants_json(),
        changes="hold" if changes == "ask" else changes,
        contract=None,
        **script_words(words),
        **given,
    )
