"""`actum log`: what happened lately, one line each, the newest last."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click

from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, table, terminal
from actum.doors.cli.time_options import MOMENT, moment
from actum.errors import Refused

if TYPE_CHECKING:
    from actum.evidence.activity import Activity
    from actum.registry.lock import Lock
    from actum.runtime import Runtime

_LINES = 20
_POLL_S = 1.0
#: A record may be written this long after the time that it states.
_LATE = timedelta(days=1)
_COLUMNS = (
    *(table.whole("TIME"), table.states("OUTCOME"), "WHAT", "ABOUT", table.ids("ID")),
    *(table.whole("TOOK"), table.whole("DENIED"), "BY"),
)


@click.command("log", cls=command_table.Command)
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(1),
    metavar="N",
    help=f"How many entries.  [default: {_LINES}; with --since all]",
)
@click.option("--since", type=moment, metavar=MOMENT, help="Only what happened since then.")
@click.option("--follow", is_flag=True, help="Stay, and print what happens next; ends with Ctrl-C.")
def command(count: int | None, since: datetime | None, follow: bool) -> int:
    """Show executions, work items, approvals, decisions about changes, tools and settings.

    In the order of time, the newest last. Each line has the time (UTC), the outcome, the tool or
    subject, an id that the other commands take, how long it took, how much it was denied, and who
    asked or decided. What has not ended yet is `running`.
    """
    if follow and command_table.wants_json():
        raise click.UsageError("--json is one document, so it does not go with --follow.")
    from actum.evidence.activity import newest_first, newest_record, running

    most = count or (None if since else _LINES)
    with command_table.open_runtime() as runtime:
        last = newest_record(runtime.database)
        lock = _lock(runtime)
        found = _since(newest_first(runtime.database), since)
        entries = [*islice(found, most), *running(runtime.database), *_changes(lock)]
        entries = _in_order(entries, since)[-(most or len(entries)) :] if entries else []
        if command_table.wants_json():
            terminal.document({"log": [each.document() for each in entries]})
            return exit_codes.SUCCESS
        _show(entries, lock)
        if follow:
            _follow(runtime, last, lock)
    return exit_codes.SUCCESS


def _since(found: Iterator[Activity], since: datetime | None) -> Iterator[Activity]:
    """Without the rest of a long log: records are in the order of their commits."""
    earliest = "" if since is None else _text(since, _LATE)
    for each in found:
        if each.time < earliest:
            return
        yield each


def _in_order(entries: Iterable[Activity], since: datetime | None) -> list[Activity]:
    earliest = "" if since is None else _text(since)
    kept = (each for each in entries if each.time >= earliest[: len(each.time)])
    return sorted(kept, key=lambda each: (each.time, each.seq))


def _text(at: datetime, before: timedelta = timedelta()) -> str:
    try:
        return utc_text(at - before)
    except OverflowError:
        return ""


def _lock(runtime: Runtime) -> Lock:
    """The decisions about tools and settings. A lock that is refused has none that count."""
    from actum.registry.lock import Lock

    try:
        return runtime.services.registry.lock()
    except Refused as refusal:
        terminal.aside(f"actum: without tools and settings: {refusal.message}")
        return Lock()


def _changes(lock: Lock, known: Lock | None = None) -> Iterator[Activity]:
    """Decisions about tools and settings that `lock` has and `known` has not."""
    from actum.evidence.activity import Activity

    for tool in lock.history[len(known.history) if known else 0 :]:
        yield Activity(
            time=tool.date, kind="tool", outcome=tool.action, about=tool.tool_id, by=tool.by
        )
    for setting in lock.settings_history[len(known.settings_history) if known else 0 :]:
        yield Activity(
            time=setting.date,
            kind="settings",
            outcome="approve",
            about=", ".join(setting.changed),
            by=setting.approver,
        )


def _show(entries: Iterable[Activity], lock: Lock, *, heads: bool = True) -> None:
    names = {pin.tool_id: pin.name for pin in lock.pins}
    rows = [
        (
            each.time[:19].replace("T", " "),
            each.outcome,
            each.kind,
            names.get(each.about, each.about),
            each.id,
            "" if each.duration_ms is None else f"{each.duration_ms} ms",
            str(each.denials or ""),
            each.by,
        )
        for each in entries
    ]
    if rows or heads:
        table.show(_COLUMNS, rows, heads=heads)


def _follow(runtime: Runtime, last: int, lock: Lock) -> None:
    from actum.evidence.activity import newest_first

    while True:
        terminal.flush()
        time.sleep(_POLL_S)
        found = list(newest_first(runtime.database, after=last))
        last = max((each.seq for each in found), default=last)
        known, lock = lock, _lock(runtime)
        _show(_in_order([*found, *_changes(lock, known)], None), lock, heads=False)
