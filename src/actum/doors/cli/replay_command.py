"""`actum replay`: runs an execution again and compares it with its record. Exits 0 if identical."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.request_from_options import asked, require_sense
from actum.doors.cli.request_options import asking_options


@click.command("replay", cls=command_table.Command)
@click.argument("execution_id", metavar="ID")
@asking_options
def command(*, execution_id: str, **given: Any) -> int:
    """Run the request of execution ID again, and show whether the result is the same.

    Records hold digests, so give the request again, as for `actum exec`: the TOOL and its options
    after the ID, or -f CONTRACT. The verdict is identical, diverged (and where) or not replayable
    (and why). What tools write, they write again.
    """
    from actum.doors.cli.id_prefix import full_id
    from actum.evidence.id_prefixes import IdKind

    require_sense(**given)
    with command_table.open_runtime() as runtime:
        execution_id = full_id(runtime.database, execution_id, (IdKind.EXECUTION,))
        found = runtime.replay(execution_id, asked(runtime, **given))
    if command_table.wants_json():
        terminal.document(found.document())
    else:
        terminal.line(f"{found.verdict}{f': {found.why}' if found.why else ''}")
        for line in found.differs:
            terminal.line(f"  {line}")
    return _CODES[found.verdict.value]


_CODES = {
    "identical": exit_codes.SUCCESS,
    "diverged": exit_codes.FAILED,
    "not replayable": exit_codes.REFUSED,
}
