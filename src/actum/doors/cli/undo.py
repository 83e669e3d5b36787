"""`actum undo`: bring back what was there before a work item."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item import tell_result


@click.command("undo", cls=words.Command, short_help="Take a committed work item back.")
@click.argument("receipt", metavar="RECEIPT")
def command(receipt: str) -> int:
    """Bring back what was there before a work item, if nothing newer rests on it.

    RECEIPT is the id that `actum work` and `actum item run` have told, or the id of the run. What
    is brought back is a change with a receipt of its own, and can be undone too.
    """
    with words.open_runtime() as runtime, interrupted_by_signals():
        result = runtime.workshop.undo(receipt)
    if words.wants_json():
        say.document(result.document())
    else:
        tell_result(result, done="Undone")
    return exit_codes.SUCCESS
