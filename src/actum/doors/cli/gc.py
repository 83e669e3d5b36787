"""`actum gc`: gives back the space of what nothing refers to."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words


@click.command("gc", cls=words.Command, short_help="Remove what nothing refers to.")
def command() -> int:
    """Remove files that no record names and raw output that no session owns any more.

    Records, receipts and everything they name stay.
    """
    from actum.evidence.garbage import collect

    with words.open_runtime() as runtime:  # opening already ends what crashed processes left
        removed = collect(runtime.database, runtime.blobs)
    if words.wants_json():
        say.document({"files": removed.files, "bytes": removed.bytes})
    else:
        say.line(f"{removed.files} files removed, {removed.bytes} bytes.")
    return exit_codes.SUCCESS
