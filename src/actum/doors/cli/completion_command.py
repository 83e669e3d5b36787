"""`actum completion`: the completion script of a shell."""

from __future__ import annotations

import sys

import click

from actum.doors.cli import command_table, exit_codes


@click.command("completion", cls=command_table.Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script of a shell.

    \b
    eval "$(actum completion bash)"         # in ~/.bashrc
    eval "$(actum completion zsh)"          # in ~/.zshrc
    actum completion fish | source          # in config.fish
    """
    from click.shell_completion import get_completion_class

    from actum.doors.cli.group import cli

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 -- the choices above are click's own
    script = kind(cli, {}, "actum", "_ACTUM_COMPLETE")
    sys.stdout.write(script.source_template % script.source_vars() + "\n")
    return exit_codes.SUCCESS
