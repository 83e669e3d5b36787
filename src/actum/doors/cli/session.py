"""`actum session`: raw output lives as long as its session, and a named one ends when told to."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words


@click.group("session", cls=words.Group)
def command() -> None:
    """Sessions, in which raw output is kept."""


@command.command("list")
def list_sessions() -> int:
    """The sessions that still keep raw output."""
    with words.open_runtime() as runtime:
        sessions = runtime.rooms.sessions.names()
    if words.wants_json():
        say.document({"sessions": list(sessions)})
    else:
        for session in sessions:
            say.line(session)
    return exit_codes.SUCCESS


@command.command("end")
@click.argument("wanted", metavar="ID")
def end_session(wanted: str) -> int:
    """Remove all raw output of a session. Receipts and evidence stay."""
    with words.open_runtime() as runtime:
        runtime.rooms.sessions.end(wanted)
    if words.wants_json():
        say.document({"ended": wanted})
    else:
        say.aside(f"actum: session {wanted} has ended; its raw output is gone.")
    return exit_codes.SUCCESS
