"""`actum diff`: what an execution changed, and the decision about changes that wait."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from actum.doors.cli import exit_codes, say, words
from actum.evidence.trace import rfc3339

if TYPE_CHECKING:
    from actum.workspace.transaction import Kept

_MOST_LINES = 2_000


@click.command("diff", cls=words.Command, short_help="What an execution changed.")
@click.argument("execution", metavar="[ID]", required=False)
@click.option("--commit", "decision", flag_value="commit", help="Bring changes in that wait.")
@click.option("--discard", "decision", flag_value="discard", help="Drop changes that wait.")
@click.option("--over", is_flag=True, help="With --commit: also over newer changes of others.")
def command(execution: str | None, decision: str | None, *, over: bool) -> int:
    """Show the files that an execution created, modified and deleted, line by line.

    Without an ID: the executions whose changes are kept. A transaction in the state `conflict`, or
    one that `actum exec --overlay ask` has left, is decided with --commit or --discard. One that is
    `held` changes names that govern the project or that git executes; `actum approvals` decides it.
    """
    with words.open_runtime() as runtime:
        transactions = runtime.transactions
        if execution is None:
            _list(transactions.all())
            return exit_codes.SUCCESS
        kept = transactions.find(execution)
        if decision is None:
            _show(kept)
            return exit_codes.SUCCESS
        state = transactions.decide(kept, commit=decision == "commit", over=over)
    if words.wants_json():
        say.document({"id": kept.name, "state": state})
    else:
        say.line(f"{kept.name}: {state}")
    return exit_codes.SUCCESS if state in ("committed", "discarded") else exit_codes.REFUSED


def _list(found: tuple[Kept, ...]) -> None:
    if words.wants_json():
        say.document({"changes": [_document(kept) for kept in found]})
    elif not found:
        say.line("No changes are kept.")
    else:
        rows = [
            (
                kept.execution_id,
                kept.state,
                _age(time.time() - kept.begun_at),
                _size(kept.size),
                _counts(kept),
                _first(kept),
            )
            for kept in found
        ]
        say.table(("EXECUTION", "STATE", "AGE", "SIZE", "PATHS", "FIRST"), rows)


def _document(kept: Kept) -> dict[str, object]:
    return {
        "execution_id": kept.execution_id,
        "id": kept.name,
        "state": kept.state,
        "why": list(kept.why),
        "diff_sha256": kept.diff_sha256,
        "begun_at": rfc3339(datetime.fromtimestamp(kept.begun_at, UTC)),
        "bytes": kept.size,
        "changes": kept.changes,
    }


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def _size(size: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size >> 10} KiB"


def _counts(kept: Kept) -> str:
    return str(sum(len(each["changes"]) for each in kept.changes))


def _first(kept: Kept) -> str:
    for each in kept.changes:
        for change in each["changes"]:
            return f"{each['grant']}/{change['path']}"
    return ""


def _show(kept: Kept) -> None:
    if words.wants_json():
        say.document(_document(kept))
        return
    why = f" ({', '.join(kept.why)})" if kept.why else ""
    say.line(f"{kept.execution_id}: {kept.state}{why}")
    for line in lines(kept):
        say.line(say.one_line(line))


def lines(kept: Kept) -> Iterator[str]:
    for each in kept.changes:
        for number, change in enumerate(each["changes"]):
            path = f"{each['grant']}/{change['path']}" if change["path"] else each["grant"]
            yield f"{change['action']} {path}{_mode(change)}"
            yield from _text(kept, each["grant"], number, change)


def _mode(change: dict[str, list[object] | None]) -> str:
    before, after = change["before"], change["after"]
    if before and after and before[1] != after[1]:
        return f" (mode {before[1]:o} -> {after[1]:o})"
    return ""


def _text(
    kept: Kept, grant: str, number: int, change: dict[str, list[object] | None]
) -> Iterator[str]:
    """The lines that differ, where a file has lines on both sides and its content was kept."""
    sides = [change["before"], change["after"]]
    if any(side and side[0] != "f" for side in sides):
        return
    contents = kept.contents(grant, number)
    texts: list[list[str]] = []
    for side, content in zip(sides, contents, strict=True):
        if side and content is None:
            yield "  (content not kept)"
            return
        try:
            texts.append((content or b"").decode().splitlines())
        except UnicodeDecodeError:
            yield "  (not text)"
            return
    before, after = texts
    lines = difflib.unified_diff(before, after, "before", "after", lineterm="")
    for count, line in enumerate(lines):
        if count == _MOST_LINES:
            yield "  (more lines differ)"
            return
        yield f"  {line}"
