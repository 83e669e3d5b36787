"""`actum undo`: bring back what was there before an execution or a work item."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item import tell_result


@click.command("undo", cls=words.Command, short_help="Undo changes.")
@click.argument("name", metavar="ID")
def command(name: str) -> int:
    """Bring back what was there before an execution or a work item, if nothing newer rests on it.

    ID is the id of an execution, or the receipt or run id of a work item. Undoing a work item is a
    change with a receipt of its own, and can be undone too.
    """
    with words.open_runtime() as runtime, interrupted_by_signals():
        kept = next(
            (each for each in runtime.transactions.all() if name in (each.execution_id, each.name)),
            None,
        )
        if kept is not None:
            runtime.transactions.undo(kept)
            paths = sum(len(each["changes"]) for each in kept.changes)
            if words.wants_json():
                say.document({"execution_id": kept.execution_id, "state": "undone", "paths": paths})
            else:
                say.line(f"Undone: {kept.execution_id}, {paths} paths are as they were before.")
            return exit_codes.SUCCESS
        result = runtime.workshop.undo(name)
    if words.wants_json():
        say.document(result.document())
    else:
        tell_result(result, done="Undone")
    return exit_codes.SUCCESS
