"""`actum item`: one work item on this project, and the parts of its replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import exit_codes, say, words

if TYPE_CHECKING:
    from actum.engine.work.model import RunResult

CODES = {
    "success": exit_codes.SUCCESS,
    "failure": exit_codes.FAILED,
    "denied": exit_codes.REFUSED,
    "timeout": exit_codes.TIMED_OUT,
}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group("item", cls=words.Group)
def command() -> None:
    """One work item: all of an agent's work on the project, or nothing of it."""


@command.command("run")
@click.argument("file", metavar="ITEM.yaml", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(["auto", "overlay", "copy"]),
    default="auto",
    show_default=True,
    help="How its changes are kept apart; auto takes a copy where an overlay cannot be had.",
)
def run_item(file: Path, engine: str) -> int:
    """Carry out a work item, and say what came of it."""
    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    with words.open_runtime() as runtime:
        result = runtime.workshop.run(file, engine=engine)
    if words.wants_json():
        say.document(result.document())
    else:
        tell_result(result)
    return CODES[result.status.value]


@command.command("hash")
@click.argument("folder", metavar="[DIR]", type=_FOLDER, required=False)
def hash_state(folder: Path | None) -> int:
    """The hash of the project's state, or of another folder's."""
    with words.open_runtime() as runtime:
        found = runtime.workshop.state_hash(None if folder is None else folder.resolve())
    if words.wants_json():
        say.document({"state_hash": found})
    else:
        say.line(found)
    return exit_codes.SUCCESS


@command.command("restore")
@click.argument("run_id", metavar="RUN")
@click.argument("folder", metavar="DIR", type=_FOLDER)
def restore_state(run_id: str, folder: Path) -> int:
    """Put the state from before a run into a folder, and compare its hash with the record.

    RUN is the `run_id` of its receipt. Replay scripts call this first.
    """
    with words.open_runtime() as runtime:
        runtime.workshop.find(run_id)
        found = runtime.workshop.restore(run_id, folder.resolve())
        wanted = runtime.workshop.records.before_hash(run_id)
    if found != wanted:
        say.aside("The state before cannot be restored: the project was changed since, not by us.")
        return exit_codes.FAILED
    return exit_codes.SUCCESS


@command.command("again")
@click.argument("run_id", metavar="RUN")
@click.argument("folder", metavar="DIR", type=_FOLDER)
def do_again(run_id: str, folder: Path) -> int:
    """Do a run's work once more on a restored state. Neither admitted nor recorded as a run.

    RUN is the `run_id` of its receipt. Replay scripts call this second.
    """
    with words.open_runtime() as runtime:
        found = runtime.workshop.again(run_id, folder.resolve())
    if words.wants_json():
        say.document({"state_hash": found})
    return exit_codes.SUCCESS


def tell_result(result: RunResult, *, done: str = "Work item complete") -> None:
    mark = f"✅ {done}" if result.status == "success" else "❌ Work item failed"
    reason = result.error or result.denial_reason
    say.line(f"{mark}: {result.receipt_id if reason is None else reason}")
    for sign, paths in (
        ("+", result.created_files),
        ("~", result.modified_files),
        ("-", result.deleted_files),
    ):
        for path in paths:
            say.line(f"  {sign} {path}")
    if result.status == "success" and not result.metrics.delta_size:
        say.line("  (nothing changed)")
    say.line(f"Output hash: {result.output_hash}")
    say.line(f"Receipt: {result.receipt_path}")
    if result.proof_script is not None:
        say.line(f"Replay: {result.proof_script}")
