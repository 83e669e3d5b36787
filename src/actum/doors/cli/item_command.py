"""`actum item`: one work item on this project, and the parts of its replay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.interrupts import interrupted_by_signals

if TYPE_CHECKING:
    from actum.runtime import Runtime
    from actum.work.model import RunResult

CODES = {
    "success": exit_codes.SUCCESS,
    "failure": exit_codes.FAILED,
    "denied": exit_codes.REFUSED,
    "timeout": exit_codes.TIMED_OUT,
}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group("item", cls=command_table.Group)
def command() -> None:
    """One work item: all of an agent's work on the project, or none of it."""


@command.command("run")
@click.argument("file", metavar="ITEM.yaml", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(["auto", "overlay", "copy"]),
    default=None,
    help="How its changes are isolated; auto uses a copy where the kernel has no overlay."
    "  [default: `[work] engine` of actum.toml, else auto]",
)
def run_item(file: Path, engine: str | None) -> int:
    """Run a work item, and print its outcome.

    Ctrl-C ends it: nothing of it is committed, or all of it is and the receipt says so.
    """
    from actum.work.work_items import WorkInterrupted

    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    interrupted = False
    with command_table.open_runtime() as runtime, interrupted_by_signals():
        try:
            result = runtime.work_items.run(file, engine=engine)
        except WorkInterrupted as interrupt:
            if interrupt.result is None:
                raise
            result, interrupted = interrupt.result, True
    if command_table.wants_json():
        terminal.document(result.document())
    else:
        if interrupted:
            committed = result.status == "success"
            terminal.aside(f"Cancelled{', after it was committed' if committed else ''}.")
        tell_result(result)
    return exit_codes.CANCELLED if interrupted else CODES[result.status.value]


@command.command("hash")
@click.argument("folder", metavar="[DIR]", type=_FOLDER, required=False)
def hash_state(folder: Path | None) -> int:
    """Print the hash of the project's state, or of another folder's."""
    with command_table.open_runtime() as runtime:
        found = runtime.work_items.state_hash(None if folder is None else folder.resolve())
    if command_table.wants_json():
        terminal.document({"state_hash": found})
    else:
        terminal.line(found)
    return exit_codes.SUCCESS


@command.command("restore")
@click.argument("run_id", metavar="RUN")
@click.argument("folder", metavar="DIR", type=_FOLDER)
def restore_state(run_id: str, folder: Path) -> int:
    """Put the state from before a run into a new or empty folder, and compare its hash with the
    record.

    RUN is the `run_id` of its receipt. Replay scripts call this first.
    """
    with command_table.open_runtime() as runtime:
        run_id = _run(runtime, run_id)
        runtime.work_items.find(run_id)
        found = runtime.work_items.restore(run_id, folder.resolve())
        wanted = runtime.work_items.records.before_hash(run_id)
    if found != wanted:
        terminal.aside(
            "The state before cannot be restored: another program has changed the project since."
        )
        return exit_codes.FAILED
    return exit_codes.SUCCESS


@command.command("accept")
@click.argument("receipt", metavar="RECEIPT")
def accept_state(receipt: str) -> int:
    """Accept the project as it is, after `verify` or `doctor` reported DAMAGED.

    After a crash, Actum compares the project with the state that the interrupted run had frozen.
    Check the paths that it names: restore what is missing, or keep your own edits. Then this
    command records, with a receipt, that you accept the state as it is now. It changes no file.
    RECEIPT is the id in the message.
    """
    with command_table.open_runtime() as runtime:
        result = runtime.work_items.accept(_full(runtime, receipt))
    if command_table.wants_json():
        terminal.document(result.document())
    else:
        tell_result(result, done="Accepted as it is")
    return exit_codes.SUCCESS


@command.command("place", hidden=True)
def make_place() -> int:
    """Make a throwaway folder for the process that calls this command. For replay scripts."""
    from actum.sandbox import sweep

    terminal.line(str(sweep.make_home(os.getppid())))
    return exit_codes.SUCCESS


@command.command("clear", hidden=True)
@click.argument("folder", metavar="DIR", type=_FOLDER)
def clear_place(folder: Path) -> int:
    """Remove a folder that `place` made."""
    from actum.errors import Refused
    from actum.sandbox import sweep

    # The marker alone is not enough: an agent can create a file of that name in the project.
    if folder.exists() and not sweep.is_home(folder):
        raise Refused(
            "NO_THROWAWAY_FOLDER",
            f"{folder} is not a folder that `actum item place` has made.",
            remedy="Nothing was removed. Replay scripts call this command; there is no need to.",
        )
    sweep.remove_home(folder)
    return exit_codes.SUCCESS


@command.command("again")
@click.argument("run_id", metavar="RUN")
@click.argument("folder", metavar="DIR", type=_FOLDER)
def do_again(run_id: str, folder: Path) -> int:
    """Repeat a run's work on a restored state. Neither admitted nor recorded as a run.

    RUN is the `run_id` of its receipt. Replay scripts call this second.
    """
    with command_table.open_runtime() as runtime:
        found = runtime.work_items.again(_run(runtime, run_id), folder.resolve())
    if command_table.wants_json():
        terminal.document({"state_hash": found})
    return exit_codes.SUCCESS


def _full(runtime: Runtime, wanted: str) -> str:
    from actum.doors.cli.id_prefix import WORK, full_id

    return full_id(runtime.database, wanted, WORK)


def _run(runtime: Runtime, wanted: str) -> str:
    """The run, also by the id of its receipt."""
    wanted = _full(runtime, wanted)
    return runtime.work_items.records.of_receipt(wanted) or wanted


def tell_result(result: RunResult, *, done: str = "Work item complete") -> None:
    mark = f"✅ {done}" if result.status == "success" else "❌ Work item failed"
    reason = result.error or result.denial_reason
    terminal.line(f"{mark}: {result.receipt_id if reason is None else reason}")
    for sign, paths in (
        ("+", result.created_files),
        ("~", result.modified_files),
        ("-", result.deleted_files),
    ):
        for path in paths:
            terminal.line(f"  {sign} {path}")
    if result.status == "success" and not result.metrics.delta_size:
        terminal.line("  (nothing changed)")
    terminal.line(f"Output hash: {result.output_hash}")
    terminal.line(f"Receipt: {result.receipt_path}")
    if result.proof_script is not None:
        terminal.line(f"Replay: {result.proof_script}")
