"""`actum gc`: removes unreferenced files."""

from __future__ import annotations

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.command("gc", cls=command_table.Command, short_help="Remove unreferenced files.")
def command() -> int:
    """Remove files that no record names, raw output that no session owns any more, compiled
    programs that were not used for 30 days, and the oldest transactions beyond `[workspace] keep`
    and `keep_mb`.

    Records, receipts and everything they name stay. Changes that wait for a decision stay too.
    """
    from actum.evidence.garbage import collect
    from actum.execution.build_cache import remove_unused

    with (
        command_table.open_runtime() as runtime
    ):  # opening ends what crashed processes left, and prunes
        removed = collect(runtime.database, runtime.blobs)
        programs, freed = remove_unused(runtime.settings.home)
    files, size = removed.files + programs, removed.bytes + freed
    if command_table.wants_json():
        terminal.document({"files": files, "bytes": size})
    else:
        terminal.line(f"{files} files removed, {size} bytes.")
    return exit_codes.SUCCESS
