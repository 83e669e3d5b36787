"""`actum undo`: bring back what was there before an execution or a work item."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item import tell_result
from actum.errors import Refused


@click.command("undo", cls=words.Command, short_help="Undo changes.")
@click.argument("name", metavar="ID")
def command(name: str) -> int:
    """Bring back what was there before an execution or a work item, if nothing newer rests on it.

    ID is the id of an execution, or the receipt or run id of a work item. Undoing a work item is a
    change with a receipt of its own, and can be undone too.
    """
    with words.open_runtime() as runtime, interrupted_by_signals():
        if attempts := runtime.transactions.attempts(name):
            # The last one first: it rests on what the earlier ones have changed.
            for kept in reversed(attempts):
                runtime.transactions.undo(kept)
            execution_id = attempts[0].execution_id
            changed = {
                (each["grant"], change["path"])
                for kept in attempts
                for each in kept.changes
                for change in each["changes"]
            }
            if words.wants_json():
                paths = len(changed)
                say.document({"execution_id": execution_id, "state": "undone", "paths": paths})
            else:
                count = "1 path is" if len(changed) == 1 else f"{len(changed)} paths are"
                say.line(f"Undone: {execution_id}, {count} as before.")
            return exit_codes.SUCCESS
        try:
            result = runtime.workshop.undo(name)
        except Refused as error:
            if error.code != "WORK_RUN_UNKNOWN":
                raise
            raise Refused(
                "UNDO_UNKNOWN",
                f"No execution whose changes are kept and no work item has the id {name[:80]!r}.",
                remedy="`actum diff` lists the executions, `actum work` the receipts of work items."
                " An execution that changed nothing, or whose changes were not committed, has"
                " nothing to undo.",
            ) from error
    if words.wants_json():
        say.document(result.document())
    else:
        tell_result(result, done="Undone")
    return exit_codes.SUCCESS
