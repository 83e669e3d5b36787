"""`actum try`: runs a program from stdin in a throwaway project, which is removed afterwards."""

from __future__ import annotations

import sys

import click

from actum.doors.cli import command_table, exit_codes, reply, terminal
from actum.doors.cli.exec_output import cancelled_by_signals
from actum.doors.cli.live_output import passing_through

_EXAMPLE = {
    "shell": "`echo 'echo hello' | actum try`",
    "python": "`echo 'print(6 * 7)' | actum try python`",
}


@click.command("try", cls=command_table.Command)
@click.argument("language", type=click.Choice(["shell", "python"]), default="shell")
@click.option("--raw", is_flag=True, help="On a terminal, keep all control sequences.")
def command(language: str, raw: bool) -> int:
    """Run a program read from stdin in a throwaway project, and verify its receipt.

    \b
    echo 'echo hello' | actum try
    echo 'print(6 * 7)' | actum try python
    """
    from actum.adapters.given_program import is_blank
    from actum.runtime import Runtime

    if sys.stdin.isatty():
        terminal.aside(f"Type a {language} program, then Ctrl-D.")
    program = sys.stdin.buffer.read()
    if is_blank(program):
        raise click.UsageError(f"The program on stdin is empty. Give one: {_EXAMPLE[language]}.")
    with Runtime.temporary() as runtime:
        with cancelled_by_signals() as cancel, passing_through(cancel, raw=raw) as live:
            on_output = None if command_table.wants_json() else live
            result = runtime.exec(language, stdin=program, on_output=on_output, cancel=cancel)
        findings = runtime.verifier.verify_execution(result.receipt_id)
    live.drain()
    verified = all(finding.passed for finding in findings)
    if command_table.wants_json():
        terminal.document({**result.document(), "verified": verified})
    else:
        for text in reply.summary_lines(result):
            terminal.aside(text)
        verdict = "verified" if verified else "NOT verified"
        terminal.aside(
            f"actum: receipt {verdict} ({len(findings)} checks). This project was a throwaway;"
            " `actum init` makes one whose receipts stay."
        )
    return exit_codes.OF_OUTCOME[result.outcome] if verified else exit_codes.FAILED
