"""`actum gc`: removes unreferenced files, and what is older than an age."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, table, terminal
from actum.doors.cli.time_options import AGE, age, before_now

if TYPE_CHECKING:
    from actum.runtime import Runtime

#: What: how many, and bytes.
_Counts = dict[str, tuple[int, int]]
_LEAST = timedelta(hours=1)


@click.command("gc", cls=command_table.Command)
@click.option(
    "--keep", type=age, metavar=AGE, help="Also remove contents that are older, such as 30d."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing of it.")
def command(keep: timedelta | None, dry_run: bool) -> int:
    """Remove files that no record names, raw output that no session owns any more, compiled
    programs that were not used for 30 days, and the oldest transactions beyond `[workspace] keep`
    and `keep_mb`.

    With --keep AGE (1h at least) also what is older: raw output of named sessions, collected files,
    stored changes of transactions that are over, approved files of former versions of tools. Each
    removal is on record: `actum verify --all` passes, and says `removed by gc on`. Such output and
    files cannot be shown any more, and such changes cannot be undone.

    Audit records, receipts, evidence records and trace events always stay, and so do work items,
    expected outputs, and changes that wait for a decision.
    """
    if keep is not None and keep < _LEAST:
        raise click.UsageError("--keep: give at least 1h; a running process may need newer files.")
    with command_table.open_runtime() as runtime:  # opening ends what crashed processes left
        counts = {
            **_unreferenced(runtime, keep, dry_run=dry_run),
            **({} if keep is None else _older(runtime, keep, dry_run=dry_run)),
        }
    files, size = (sum(column) for column in zip(*counts.values(), strict=True))
    if command_table.wants_json():
        removed = {name: {"count": count, "bytes": some} for name, (count, some) in counts.items()}
        terminal.document({"files": files, "bytes": size, "dry_run": dry_run, "removed": removed})
        return exit_codes.SUCCESS
    if keep is not None or dry_run:
        rows = [(name, str(count), str(some)) for name, (count, some) in counts.items()]
        table.show((table.whole("WHAT"), table.whole("COUNT"), table.whole("BYTES")), rows)
    would = "would be " if dry_run else ""
    terminal.line(f"{files} files {would}removed, {size} bytes.")
    return exit_codes.SUCCESS


def _unreferenced(runtime: Runtime, keep: timedelta | None, *, dry_run: bool) -> _Counts:
    from actum.evidence.garbage import collect
    from actum.execution.build_cache import UNUSED_S, remove_unused

    removed = collect(runtime.database, runtime.blobs, dry_run=dry_run)
    unused_s = UNUSED_S if keep is None else keep.total_seconds()
    programs = remove_unused(runtime.settings.home, unused_s=unused_s, dry_run=dry_run)
    return {"unnamed files": (removed.files, removed.bytes), "compiled programs": programs}


def _older(runtime: Runtime, keep: timedelta, *, dry_run: bool) -> _Counts:
    from actum.evidence.expiry import Expiry
    from actum.registry.approved_content import ApprovedContent

    services, before = runtime.services, before_now(keep)
    expiry = Expiry(runtime.database, services.ledger.log, runtime.blobs, services.sessions)
    pins = services.registry.lock().pins
    stored = ApprovedContent(runtime.settings.home).unpinned(pins, before.timestamp())
    former = (len(stored), sum(map(_size, stored)))
    changes = [kept.size for kept in runtime.transactions.older(before)]
    if dry_run:
        found = expiry.expired(before)
    else:
        found = expiry.remove(before, services.clock())
        runtime.transactions.remove_older(before)
        for path in stored:
            path.unlink(missing_ok=True)
    return {
        "raw outputs": (len(found.outputs) + len(found.cached), found.output_bytes),
        "collected files": (len(found.contents), sum(found.contents.values())),
        "changes": (len(changes), sum(changes)),
        "former tool files": former,
    }


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
