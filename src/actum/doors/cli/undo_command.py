"""`actum undo`: restores the state before an execution or a work item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.item_command import tell_result
from actum.errors import Refused

if TYPE_CHECKING:
    from actum.work.history import KeptRun
    from actum.work.model import RunResult


@click.command("undo", cls=command_table.Command)
@click.argument("name", metavar="ID")
@click.option(
    "--with-dependents", is_flag=True, help="Undo the later work items that rest on it as well."
)
def command(name: str, with_dependents: bool) -> int:
    """Restore the state before an execution or a work item, if no newer change depends on it.

    ID is the id of an execution, or the receipt or run id of a work item. Undoing a work item is a
    change with a receipt of its own, and can be undone too. If later work items rest on it, the
    refusal names them; --with-dependents undoes all of them, the newest first.
    """
    from actum.doors.cli.id_prefix import WORK, full_id
    from actum.evidence.id_prefixes import IdKind

    with command_table.open_runtime() as runtime, interrupted_by_signals():
        name = full_id(runtime.database, name, (IdKind.EXECUTION, *WORK))
        if attempts := runtime.transactions.attempts(name):
            # The last one first: it depends on the changes of the earlier ones.
            for kept in reversed(attempts):
                runtime.transactions.undo(kept)
            execution_id = attempts[0].execution_id
            changed = {
                (each["grant"], change["path"])
                for kept in attempts
                for each in kept.changes
                for change in each["changes"]
            }
            if command_table.wants_json():
                paths = len(changed)
                terminal.document({"execution_id": execution_id, "state": "undone", "paths": paths})
            else:
                count = "1 path is" if len(changed) == 1 else f"{len(changed)} paths are"
                terminal.line(f"Undone: {execution_id}, {count} as before.")
            return exit_codes.SUCCESS
        try:
            if with_dependents:
                return _tell_all(runtime.work_items.undo_with_dependents(name))
            result = runtime.work_items.undo(name)
        except Refused as error:
            if error.code != "WORK_RUN_UNKNOWN":
                raise
            raise Refused(
                "UNDO_UNKNOWN",
                f"No execution with stored changes and no work item has the id {name[:80]!r}.",
                remedy="`actum diff` lists the executions, `actum work` the receipts of work items."
                " An execution that changed nothing, or whose changes were not committed, has"
                " nothing to undo.",
            ) from error
    if command_table.wants_json():
        terminal.document(result.document())
    else:
        tell_result(result, done="Undone")
    return exit_codes.SUCCESS


def _tell_all(undone: Sequence[tuple[KeptRun, RunResult]]) -> int:
    if command_table.wants_json():
        listed = [
            {"item": kept.item.id, "run_id": kept.run_id, "result": result.document()}
            for kept, result in undone
        ]
        terminal.document({"undone": listed})
        return exit_codes.SUCCESS
    for kept, result in undone:
        terminal.line(f"Undone: {kept.item.id} · receipt {result.receipt_id}")
    return exit_codes.SUCCESS
