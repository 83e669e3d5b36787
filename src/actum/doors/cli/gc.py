"""`actum gc`: gives back the space of what nothing refers to."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words


@click.command("gc", cls=words.Command, short_help="Remove what nothing refers to.")
def command() -> int:
    """Remove files that no record names, raw output that no session owns any more, compiled
    programs that were not used for 30 days, and the oldest transactions beyond `[workspace] keep`
    and `keep_mb`.

    Records, receipts and everything they name stay. Changes that wait for a decision stay too.
    """
    from actum.engine.programs import remove_unused
    from actum.evidence.garbage import collect

    with words.open_runtime() as runtime:  # opening ends what crashed processes left, and prunes
        removed = collect(runtime.database, runtime.blobs)
        programs, freed = remove_unused(runtime.settings.home)
    files, size = removed.files + programs, removed.bytes + freed
    if words.wants_json():
        say.document({"files": files, "bytes": size})
    else:
        say.line(f"{files} files removed, {size} bytes.")
    return exit_codes.SUCCESS
