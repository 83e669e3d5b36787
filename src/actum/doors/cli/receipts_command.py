"""`actum receipts`: lists and shows receipts. `actum verify` checks them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.contract.outcome import Outcome
from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, outline, table, terminal
from actum.doors.cli.time_options import MOMENT, moment
from actum.errors import Refused

if TYPE_CHECKING:
    from actum.evidence.receipts import KeptReceipt, Receipts
    from actum.runtime import Runtime
    from actum.store.snapshot import Reader


@click.group("receipts", cls=command_table.Group)
def command() -> None:
    """Signed records of what was done."""


_STATUSES = ("success", "failure", "denied", "timeout")
_ANY_ITEM = "any"


@command.command("list")
@click.option("--tool", "tools", multiple=True, metavar="ID|NAME", help="Only of this tool.")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice([*(each.value for each in Outcome), *_STATUSES], case_sensitive=False),
    metavar="WORD",
    help="Only with this outcome; of work items, this status.",
)
@click.option("--since", type=moment, metavar=MOMENT, help="Only what ended since then.")
@click.option("--until", type=moment, metavar=MOMENT, help="Only what ended before.")
@click.option("--by", metavar="WHO", help="Only what WHO requested; of work items, this agent.")
@click.option(
    "--work",
    is_flag=False,
    flag_value=_ANY_ITEM,
    metavar="[ID]",
    help="Only work items; with an ID, that item and the executions in it.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="How many."
)
def list_receipts(
    tools: tuple[str, ...],
    outcomes: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    by: str | None,
    work: str | None,
    limit: int,
) -> int:
    """List the newest receipts of executions and work items, newest first.

    An option that may be given several times means any of its values. The ID of --work is a
    receipt, a run, or the `id` of the item.
    """
    from actum.doors.cli.id_prefix import WORK, full_id
    from actum.evidence.receipt_summaries import WORK_ITEM, Wanted, summaries

    with command_table.open_runtime() as runtime:
        database = runtime.database
        item = full_id(database, work, WORK) if work and work != _ANY_ITEM else None
        wanted = Wanted(
            tool_ids=frozenset(_tool_id(runtime, tool) for tool in tools),
            outcomes=frozenset(outcomes),
            since=utc_text(since) if since else None,
            until=utc_text(until) if until else None,
            by=by,
            work_items_only=work == _ANY_ITEM,
            work_item=item,
        )
        found = summaries(database, wanted, limit)
    if command_table.wants_json():
        terminal.document({"receipts": [each.document() for each in found]})
        return exit_codes.SUCCESS
    if not found:
        chosen = any((tools, outcomes, since, until, by, work))
        terminal.aside(f"actum: no receipt{' fits these options' if chosen else ' yet'}.")
    table.show(
        (
            *(table.ids("RECEIPT"), table.whole("FINISHED"), "TOOL", table.states("OUTCOME")),
            *(table.whole("TOOK"), "BY", table.ids("EXECUTION")),
        ),
        [
            (
                each.receipt_id,
                each.finished,
                f"item {each.work_item}" if each.kind == WORK_ITEM else str(each.tool_id),
                each.outcome,
                f"{each.duration_ms} ms",
                each.by,
                each.about,
            )
            for each in found
        ],
    )
    return exit_codes.SUCCESS


def _tool_id(runtime: Runtime, tool: str) -> str:
    """The id of a tool's name. A tool that is not registered any more has its receipts still."""
    registry = runtime.services.registry
    try:
        pin = registry.lock().pin(tool)
        return pin.tool_id if pin else registry.find_tool(tool).tool_id
    except Refused:
        return tool


def full_receipt_id(database: Reader, wanted: str) -> str:
    """The id of a receipt or an execution, or of a work item's receipt, also for its run."""
    from actum.doors.cli.id_prefix import RECEIPTS, full_id

    wanted = full_id(database, wanted, RECEIPTS)
    row = database.row("SELECT receipt_id FROM work_receipts WHERE run_id = ?", (wanted,))
    return wanted if row is None else str(row[0])


@command.command("show")
@click.argument("wanted", metavar="ID")
def show_receipt(wanted: str) -> int:
    """Show one receipt, by its id or that of its execution; of a work item, also by its run."""
    from actum.contract.run_store import EMBEDDED
    from actum.runs.verify_run import receipt_of_fleet, run_receipt_envelope

    with command_table.open_runtime() as runtime:
        wanted = full_receipt_id(runtime.database, wanted)
        of_work = runtime.work_items.records.envelope(wanted)
        if of_work is not None:
            return _show_work(wanted, of_work)
        of_run = run_receipt_envelope(runtime.database, wanted)
        if of_run is None and runtime.settings.runs_store != EMBEDDED:
            of_run = receipt_of_fleet(runtime.runs.ledger.tables, wanted)
        if of_run is not None:
            return _show_work(wanted, of_run)
        receipts = runtime.services.receipts
        kept = find(receipts, wanted)
        path = receipts.export(kept.receipt_id)
    statement = _statement(kept.envelope)
    if command_table.wants_json():
        terminal.document(
            {
                "receipt_id": kept.receipt_id,
                "execution_id": kept.execution_id,
                "path": str(path),
                "statement": statement,
                "envelope": kept.envelope,
            }
        )
        return exit_codes.SUCCESS
    outline.show(statement)
    terminal.aside(f"actum: signed copy at {path}; `actum verify {kept.receipt_id}` checks it.")
    return exit_codes.SUCCESS


def find(receipts: Receipts, wanted: str) -> KeptReceipt:
    """By receipt id, else the newest of that execution."""
    kept = receipts.get(wanted)
    if kept is not None:
        return kept
    of_execution = receipts.of_execution(wanted)
    return of_execution[-1] if of_execution else receipts.find(wanted)


def _show_work(receipt_id: str, envelope: dict[str, Json]) -> int:
    statement = _statement(envelope)
    if command_table.wants_json():
        shown = {"receipt_id": receipt_id, "statement": statement, "envelope": envelope}
        terminal.document(shown)
        return exit_codes.SUCCESS
    outline.show(statement)
    terminal.aside(f"actum: `actum verify {receipt_id}` checks it.")
    return exit_codes.SUCCESS


def _statement(envelope: Mapping[str, Json]) -> dict[str, Json]:
    statement: dict[str, Json] = json.loads(base64.b64decode(str(envelope["payload"])))
    return statement
