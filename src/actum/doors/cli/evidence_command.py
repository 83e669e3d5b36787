"""`actum evidence`: shows evidence records, gets what they name, and exports archives."""

from __future__ import annotations

import base64
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, outline, terminal
from actum.doors.cli.receipts_command import full_receipt_id
from actum.doors.cli.time_options import MOMENT, moment

if TYPE_CHECKING:
    from actum.evidence.archive import Exported, Exporter, Selection
    from actum.evidence.retrieval import Stored
    from actum.runtime import Runtime


@click.group("evidence", cls=command_table.Group)
def command() -> None:
    """Evidence records, collected files and raw output."""


@command.command("show")
@click.argument("wanted", metavar="ID|REF")
def show_evidence(wanted: str) -> int:
    """Show the records under an evidence_ref, or of one execution, receipt or evidence id."""
    with command_table.open_runtime() as runtime:
        records = runtime.evidence(_full(runtime, wanted)).records
    if command_table.wants_json():
        terminal.document({"evidence": list(records)})
        return exit_codes.SUCCESS
    for record in records:
        outline.show(record)
    return exit_codes.SUCCESS


@command.command("get")
@click.argument("wanted", metavar="REF|DIGEST")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to FILE; otherwise to stdout.",
)
def get_evidence(wanted: str, name: str | None, target: Path | None) -> int:
    """Get a collected file or a stream, exactly as it was stored.

    By its SHA-256 or BLAKE3 alone, or by a reference as for `show` and its NAME: the name or path
    of a file, stdout or stderr. Without a NAME, the only file of that reference.
    """
    with command_table.open_runtime() as runtime:
        evidence, found = runtime.services.evidence.locate(_full(runtime, wanted), name)
        content = evidence.content_of(found)
    if target is not None:
        _write(target, content)
    if command_table.wants_json():
        terminal.document(_document(found, content, target))
    elif target is not None:
        terminal.aside(f"actum: {found.kind} {found.path}, {len(content)} bytes, is in {target}.")
    else:
        terminal.content(content)
    return exit_codes.SUCCESS


def _full(runtime: Runtime, wanted: str) -> str:
    from actum.doors.cli.id_prefix import EXECUTIONS, full_id
    from actum.evidence.id_prefixes import IdKind

    return full_id(runtime.database, wanted, (*EXECUTIONS, IdKind.EVIDENCE))


@command.command("export")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every receipt of this home.")
@click.option("--since", type=moment, metavar=MOMENT, help="Receipts of what ended since then.")
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The archive: a new file, mode 0600.",
)
@click.option("--records", is_flag=True, help="Evidence records and traces too.")
@click.option("--files", is_flag=True, help="Evidence records, traces and collected files too.")
def export_evidence(
    ids: tuple[str, ...],
    everything: bool,
    since: datetime | None,
    target: Path,
    records: bool,
    files: bool,
) -> int:
    """Export receipts as one archive that verifies elsewhere, without this project.

    ID is of a receipt or an execution; of a work item, its receipt's or its run's, which brings
    the receipts of its calls. The archive holds the receipts, proofs that they are in the log, its
    signed head and the public keys. Receipts name paths and people. Evidence records and files hold
    content, so they are added only on request. Raw output that only a session holds is never added.

    `actum verify FILE --key KEY.pub` checks it anywhere.
    """
    from actum.evidence.archive import Exporter, Selection
    from actum.store.keys import public_keys

    if sum((bool(ids), everything, since is not None)) != 1:
        raise click.UsageError("Give ids, or --all, or --since: one of them.")
    with command_table.open_runtime() as runtime:
        services = runtime.services
        selection = Selection(
            ids=tuple(full_receipt_id(runtime.database, each) for each in ids),
            since=utc_text(since) if since else "",
            records=records,
            files=files,
        )
        exporter = Exporter(
            runtime.database,
            services.blobs,
            signer=services.ledger.log.signer,
            keys=tuple(public_keys(runtime.settings.home)),
        )
        done = _exported(exporter, selection, target)
        keyid = services.ledger.log.signer.keyid
    if command_table.wants_json():
        terminal.document(
            {
                "file": str(target),
                "receipts": done.receipts,
                "files": done.files,
                "bytes": done.size,
                "keyid": keyid,
            }
        )
    else:
        terminal.aside(
            f"actum: {done.receipts} receipts and {done.files} files are in {target}, signed by"
            f" {keyid}."
        )
        terminal.aside(
            "  `actum keys show --pem > KEY.pub`, then elsewhere:"
            f" `actum verify {target.name} --key KEY.pub`."
        )
    return exit_codes.SUCCESS


def _exported(exporter: Exporter, selection: Selection, target: Path) -> Exported:
    # A new file: it never replaces another, and no link leads it elsewhere.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(target, flags, 0o600)
    except FileExistsError as error:
        raise click.UsageError(f"--output {target}: it exists already. Name a new file.") from error
    except OSError as error:
        raise click.UsageError(f"--output {target}: {error.strerror}.") from error
    try:
        with open(descriptor, "wb") as file:
            return exporter.export(selection, file)
    except BaseException:
        target.unlink(missing_ok=True)  # half of an archive is none
        raise


def _write(target: Path, content: bytes) -> None:
    # A tool chose the content, and may have left a link here to a file that it cannot write itself.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(target, flags, 0o666), "wb") as file:
            file.write(content)
    except OSError as error:
        if target.is_symlink():
            message = f"--output {target}: it is a symbolic link. Name the file itself."
            raise click.UsageError(message) from error
        raise click.UsageError(f"--output {target}: {error.strerror}.") from error


def _document(found: Stored, content: bytes, target: Path | None) -> dict[str, object]:
    return {
        "name": found.name,
        "path": found.path,
        "kind": found.kind,
        "execution_id": found.execution_id,
        "size": len(content),
        "sha256": found.sha256,
        "blake3": found.blake3 or None,
        **(
            {"content_base64": base64.b64encode(content).decode()}
            if target is None
            else {"file": str(target)}
        ),
    }
