"""`actum evidence`: shows evidence records, and gets the files and streams that they name."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, terminal

if TYPE_CHECKING:
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
        terminal.readable(record)
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
