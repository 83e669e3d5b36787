"""`actum audit`: checkpoints to store elsewhere, and proofs for other people."""

from __future__ import annotations

import json
from pathlib import Path

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.errors import Refused


@click.group("audit", cls=command_table.Group)
def command() -> None:
    """The audit log: its newest signed checkpoint, and proofs that a record is in it."""


@command.command("checkpoint")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it here."
)
def checkpoint(out: Path | None) -> int:
    """Print the newest signed checkpoint. Store it on another machine: only it reveals that the
    newest records were removed.

    `actum verify --checkpoint FILE` compares it with the log later.
    """
    from actum.store import note

    with command_table.open_runtime() as runtime:
        text = runtime.services.ledger.log.checkpoint()
        keyring = runtime.keyring
    if text is None:
        raise Refused(
            "LOG_EMPTY", "The audit log has no records yet.", remedy="`actum exec` makes some."
        )
    found = note.parse(text)
    if out is not None:
        out.write_text(text)
    if command_table.wants_json():
        origin = found.checkpoint.origin
        signed_by = note.verify(found, keyring.trusted.values())
        keys = [note.verifier_key(origin, keyring.public(keyid)) for keyid in signed_by]
        terminal.document(
            {
                "origin": origin,
                "size": found.checkpoint.size,
                "root": found.checkpoint.root.hex(),
                "note": text,
                "keys": keys,
            }
        )
    elif out is None:
        terminal.block(text.removesuffix("\n"))
    else:
        terminal.aside(f"actum: {found.checkpoint.size} records, checkpoint in {out}")
    return exit_codes.SUCCESS


@command.command("prove")
@click.argument("wanted", metavar="SEQ|EXECUTION_ID|RECEIPT_ID")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it here."
)
def prove_record(wanted: str, out: Path | None) -> int:
    """Print a proof that one record is in the log; `actum verify FILE --key KEY.pub` checks it
    without a project."""
    from actum.doors.cli.id_prefix import EXECUTIONS, full_id
    from actum.evidence.proof import find_record, prove

    with command_table.open_runtime() as runtime:
        if not wanted.isdigit():  # digits alone are the number of a record
            wanted = full_id(runtime.database, wanted, EXECUTIONS)
        bundle = prove(runtime.database, find_record(runtime.database, wanted))
    if out is not None:
        out.write_text(json.dumps(bundle, indent=2, ensure_ascii=False) + "\n")
    if command_table.wants_json() or out is None:
        terminal.document(bundle)
    else:
        terminal.aside(f"actum: proof of audit record {bundle['seq']} in {out}")
    return exit_codes.SUCCESS
