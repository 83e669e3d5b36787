"""`actum receipts`: lists and shows receipts. `actum verify` checks them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, terminal

if TYPE_CHECKING:
    from actum.evidence.receipts import KeptReceipt, Receipts


@click.group("receipts", cls=command_table.Group)
def command() -> None:
    """Signed records of what was done."""


@command.command("list")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="How many."
)
def list_receipts(limit: int) -> int:
    """List the newest receipts, newest first."""
    with command_table.open_runtime() as runtime:
        kept = runtime.services.receipts.latest(limit)
    briefs = [_brief(receipt) for receipt in kept]
    if command_table.wants_json():
        terminal.document({"receipts": briefs})
        return exit_codes.SUCCESS
    heads = ("receipt_id", "finished", "tool_id", "outcome", "execution_id")
    terminal.table(
        ("RECEIPT", "FINISHED", "TOOL", "OUTCOME", "EXECUTION"),
        [[str(brief[head]) for head in heads] for brief in briefs],
    )
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("wanted", metavar="ID")
def show_receipt(wanted: str) -> int:
    """Show one receipt, by its id or by that of its execution; of a work item, by its id."""
    with command_table.open_runtime() as runtime:
        of_work = runtime.work_items.records.envelope(wanted)
        if of_work is not None:
            return _show_work(wanted, of_work)
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
    terminal.readable(statement)
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
    terminal.readable(statement)
    terminal.aside(f"actum: `actum verify {receipt_id}` checks it.")
    return exit_codes.SUCCESS


def _statement(envelope: Mapping[str, Json]) -> dict[str, Json]:
    statement: dict[str, Json] = json.loads(base64.b64decode(str(envelope["payload"])))
    return statement


def _brief(kept: KeptReceipt) -> dict[str, Json]:
    predicate = _statement(kept.envelope)["predicate"]
    return {
        "receipt_id": kept.receipt_id,
        "execution_id": kept.execution_id,
        "tool_id": predicate["tool"]["id"],
        "outcome": predicate["outcome"],
        "reason_codes": predicate["reason_codes"],
        "finished": predicate["time"]["finished"],
    }
