"""`actum audit`: what to keep elsewhere, and a proof to hand to someone else."""

from __future__ import annotations

import json
from pathlib import Path

import click

from actum.doors.cli import exit_codes, say, words
from actum.errors import Refused


@click.group("audit", cls=words.Group)
def command() -> None:
    """The audit log: its newest signed checkpoint, and proofs that a record is in it."""


@command.command("checkpoint")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it here."
)
def checkpoint(out: Path | None) -> int:
    """The newest signed checkpoint. Keep it on another machine: only it shows a cut-off end.

    `actum verify --checkpoint FILE` holds it against the log later.
    """
    from actum.store import note

    with words.open_runtime() as runtime:
        text = runtime.rooms.ledger.log.checkpoint()
        keyring = runtime.keyring
    if text is None:
        raise Refused(
            "LOG_EMPTY", "The audit log has no records yet.", remedy="`actum exec` makes some."
        )
    found = note.parse(text)
    if out is not None:
        out.write_text(text)
    if words.wants_json():
        origin = found.checkpoint.origin
        signed_by = note.verify(found, keyring.trusted.values())
        keys = [note.verifier_key(origin, keyring.public(keyid)) for keyid in signed_by]
        say.document(
            {
                "origin": origin,
                "size": found.checkpoint.size,
                "root": found.checkpoint.root.hex(),
                "note": text,
                "keys": keys,
            }
        )
    elif out is None:
        say.block(text.removesuffix("\n"))
    else:
        say.aside(f"actum: {found.checkpoint.size} records, checkpoint in {out}")
    return exit_codes.SUCCESS


@command.command("prove")
@click.argument("wanted", metavar="SEQ|EXECUTION_ID|RECEIPT_ID")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it here."
)
def prove_record(wanted: str, out: Path | None) -> int:
    """A proof that one record is in the log; `actum verify FILE --key KEY.pub` checks it alone."""
    from actum.evidence.proof import find_record, prove

    with words.open_runtime() as runtime:
        bundle = prove(runtime.database, find_record(runtime.database, wanted))
    if out is not None:
        out.write_text(json.dumps(bundle, indent=2, ensure_ascii=False) + "\n")
    if words.wants_json() or out is None:
        say.document(bundle)
    else:
        say.aside(f"actum: proof of audit record {bundle['seq']} in {out}")
    return exit_codes.SUCCESS
