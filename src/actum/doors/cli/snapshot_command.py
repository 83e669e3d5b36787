"""`actum snapshot`: the project's folder in an object store: save, show, restore, gc."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.time_options import AGE, age

if TYPE_CHECKING:
    from actum.runs.transport.snapshots import Snapshots

#: Paths that `show` prints.
_SHOWN_PATHS = 20


@click.group("snapshot", cls=command_table.Group)
def command() -> None:
    """Save the project's folder in an object store; restore it elsewhere.

    STORE is file:///FOLDER or s3://BUCKET/PREFIX. The credentials of a bucket are secrets of
    [secrets] in actum.toml, given by name. `.actum` and `.git` are no part of a snapshot.
    """


def _store(function: Callable[..., int]) -> Callable[..., int]:
    """The options that name a store."""
    for option in reversed(
        (
            click.option(
                "--store", required=True, metavar="STORE", help="Where the snapshots are."
            ),
            click.option(
                "--endpoint", default="", metavar="URL", help="Of a bucket that is not Amazon's."
            ),
            click.option("--region", default="us-east-1", show_default=True, help="Of a bucket."),
            click.option(
                "--access-key",
                default="",
                metavar="SECRET",
                help="The secret with the id of the access key.",
            ),
            click.option(
                "--secret-key", default="", metavar="SECRET", help="The secret with the key itself."
            ),
            click.option(
                "--session-token",
                default="",
                metavar="SECRET",
                help="The secret with the token of temporary credentials.",
            ),
        )
    ):
        function = option(function)
    return function


@contextmanager
def _opened(store: str, **options: str) -> Iterator[Snapshots]:
    with command_table.open_runtime() as runtime:
        yield runtime.snapshots(store, **options)


@command.command("save")
@_store
@click.option("--base", default="", metavar="NAME", help="A similar snapshot in the same store.")
def save(base: str, **options: Any) -> int:
    """Save the project's folder as it is, and print the snapshot's name.

    The name is the SHA-256 of all names and contents: the same folder has the same name on any
    machine. Only what the store does not have is sent; with --base, no more is asked of it either.
    """
    with _opened(**options) as snapshots:
        saved = snapshots.save(base=base)
    if command_table.wants_json():
        terminal.document(
            {
                "snapshot": saved.name,
                "names": saved.names,
                "file_bytes": saved.file_bytes,
                "objects_written": saved.objects,
                "bytes_written": saved.bytes,
                "is_new": saved.is_new,
            }
        )
        return exit_codes.SUCCESS
    terminal.line(saved.name)
    if saved.is_new:
        terminal.aside(
            f"actum: {saved.names} names; wrote {saved.bytes} bytes in {saved.objects} objects."
        )
    else:
        terminal.aside("actum: the snapshot was there already.")
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("name", metavar="NAME")
@_store
def show(name: str, **options: Any) -> int:
    """Show one snapshot: its size, its bases and its names. Contents are not read."""
    from actum.workspace.tree import shown

    with _opened(**options) as snapshots:
        stored = snapshots.show(name)
    manifest = stored.manifest
    paths = [(listed.kind.name.lower(), shown(path)) for path, listed in manifest.entries.items()]
    document: dict[str, Any] = {
        "snapshot": stored.name,
        "names": len(paths) - 1,
        "file_bytes": manifest.file_bytes,
        "saved_at": stored.found.modified.isoformat(),
        "bases": list(stored.bases),
        "packs": len(stored.packs),
    }
    if command_table.wants_json():
        terminal.document(
            {**document, "paths": [{"kind": kind, "path": path} for kind, path in paths if path]}
        )
        return exit_codes.SUCCESS
    terminal.readable(document)
    for kind, path in paths[1 : _SHOWN_PATHS + 1]:
        terminal.line(f"{kind:<6} {terminal.one_line(path)}")
    if len(paths) > _SHOWN_PATHS + 1:
        terminal.line(f"and {len(paths) - _SHOWN_PATHS - 1} more; --json lists all.")
    return exit_codes.SUCCESS


@command.command("restore")
@click.argument("name", metavar="NAME")
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@_store
def restore(name: str, folder: Path, **options: Any) -> int:
    """Make FOLDER from a snapshot. It must not exist, and be outside of the project.

    Every byte is compared with its digest. The folder appears when it is complete. It is no project
    yet: `actum init` makes it one.
    """
    with _opened(**options) as snapshots:
        stored = snapshots.restore(name, folder)
    if command_table.wants_json():
        terminal.document({"snapshot": stored.name, "folder": str(folder)})
    else:
        terminal.line(f"restored {len(stored.manifest.entries) - 1} names to {folder}")
    return exit_codes.SUCCESS


@command.command("gc")
@click.option("--keep", multiple=True, metavar="NAME", help="A snapshot to keep. Repeatable.")
@click.option(
    "--older-than", type=age, required=True, metavar=AGE, help="Keep all younger ones; 1h at least."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@_store
def gc(keep: tuple[str, ...], older_than: timedelta, dry_run: bool, **options: Any) -> int:
    """Remove snapshots that are older than AGE, and contents that no snapshot needs.

    Snapshots given with --keep stay, with their bases. A save in progress is not disturbed. The
    contents of a removed snapshot go in a later run. Run one at a time for each store.
    """
    with _opened(**options) as snapshots:
        expired = snapshots.expire(
            keep, older_than_s=int(older_than.total_seconds()), dry_run=dry_run
        )
    if command_table.wants_json():
        terminal.document(
            {
                "snapshots": list(expired.snapshots),
                "objects": expired.objects,
                "bytes": expired.bytes,
                "kept": expired.kept,
                "dry_run": dry_run,
            }
        )
        return exit_codes.SUCCESS
    for name in expired.snapshots:
        terminal.line(name)
    would = "would be " if dry_run else ""
    terminal.line(
        f"{expired.objects} objects {would}removed, {expired.bytes} bytes;"
        f" {expired.kept} snapshots stay."
    )
    return exit_codes.SUCCESS
