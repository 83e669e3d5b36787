"""`actum session`: lists and ends sessions. Raw output is stored until its session ends."""

from __future__ import annotations

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.group("session", cls=command_table.Group)
def command() -> None:
    """List and end sessions, which store raw output."""


@command.command("list")
def list_sessions() -> int:
    """List the sessions that still have raw output."""
    with command_table.open_runtime() as runtime:
        sessions = runtime.services.sessions.names()
    if command_table.wants_json():
        terminal.document({"sessions": list(sessions)})
    else:
        for session in sessions:
            terminal.line(session)
    return exit_codes.SUCCESS


@command.command("end")
@click.argument("wanted", metavar="ID")
def end_session(wanted: str) -> int:
    """Remove all raw output of a session. Receipts and evidence stay."""
    with command_table.open_runtime() as runtime:
        runtime.end_session(wanted)
    if command_table.wants_json():
        terminal.document({"ended": wanted})
    else:
        terminal.aside(f"actum: session {wanted} has ended; its raw output was removed.")
    return exit_codes.SUCCESS
