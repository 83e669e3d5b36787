"""`actum diff`: the changes of an execution, and the decision about pending changes."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, table, terminal

if TYPE_CHECKING:
    from actum.workspace.transaction_record import Kept

_MOST_LINES = 2_000
_KINDS = {"f": "file", "d": "folder", "l": "link", "o": "pipe, socket or device"}


@click.command("diff", cls=command_table.Command)
@click.argument("execution", metavar="[ID]", required=False)
@click.option("--commit", "decision", flag_value="commit", help="Commit pending changes.")
@click.option("--discard", "decision", flag_value="discard", help="Discard pending changes.")
@click.option("--over", is_flag=True, help="With --commit: overwrite newer changes of others.")
def command(execution: str | None, decision: str | None, *, over: bool) -> int:
    """Show the files that an execution created, modified and deleted, line by line.

    Without an ID: list the executions whose changes are stored. Decide a transaction in the state
    `conflict`, or one that `actum exec --overlay ask` has left, with --commit or --discard. One
    that is `held` changes names that govern the project or that git executes; `actum approvals`
    decides it.
    """
    from actum.doors.cli.id_prefix import full_id
    from actum.evidence.id_prefixes import IdKind

    with command_table.open_runtime() as runtime:
        transactions = runtime.transactions
        if execution is None:
            _list(transactions.all())
            return exit_codes.SUCCESS
        execution = full_id(runtime.database, execution, (IdKind.EXECUTION,))
        kept = transactions.find(execution)
        if decision is None:
            _show(kept)
            return exit_codes.SUCCESS
        state = transactions.decide(kept, commit=decision == "commit", over=over)
    if command_table.wants_json():
        terminal.document({"id": kept.name, "state": state})
    else:
        terminal.line(f"{kept.name}: {state}")
    return exit_codes.SUCCESS if state in ("committed", "discarded") else exit_codes.REFUSED


def _list(found: tuple[Kept, ...]) -> None:
    if command_table.wants_json():
        terminal.document({"changes": [_document(kept) for kept in found]})
    elif not found:
        terminal.line("No changes are stored.")
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
        table.show(
            (
                *(table.ids("EXECUTION"), table.states("STATE"), table.whole("AGE")),
                *(table.whole("SIZE"), table.whole("PATHS"), "FIRST"),
            ),
            rows,
        )


def _document(kept: Kept) -> dict[str, object]:
    return {
        "execution_id": kept.execution_id,
        "id": kept.name,
        "state": kept.state,
        "why": list(kept.why),
        "diff_sha256": kept.diff_sha256,
        "begun_at": utc_text(datetime.fromtimestamp(kept.begun_at, UTC)),
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
    if command_table.wants_json():
        terminal.document(_document(kept))
        return
    why = f" ({', '.join(kept.why)})" if kept.why else ""
    terminal.line(f"{kept.execution_id}: {kept.state}{why}")
    for line in lines(kept):
        terminal.line(terminal.one_line(line))


def lines(kept: Kept) -> Iterator[str]:
    """Each change: kind before and after, and path. The path comes last, so that no name can
    imitate words of Actum."""
    for each in kept.changes:
        for number, change in enumerate(each["changes"]):
            path = f"{each['grant']}/{change['path']}" if change["path"] else each["grant"]
            yield f"{change['action']} {_sides(change)}: {path}"
            yield from _contents(kept, each["grant"], number, change)


#: Kind, mode and digest of a path; ``None``: the path does not exist.
_Side = list[Any] | None


def _sides(change: Mapping[str, _Side]) -> str:
    said = [_side(side) for side in (change["before"], change["after"]) if side]
    return " -> ".join(dict.fromkeys(said))


def _side(side: list[Any]) -> str:
    kind, mode, _digest = side
    return _KINDS[kind] if kind == "l" else f"{_KINDS[kind]} (mode {mode:o})"


def _contents(kept: Kept, grant: str, number: int, change: Mapping[str, _Side]) -> Iterator[str]:
    """The lines that differ; the digest of content that is not text or not shown."""
    before, after = change["before"], change["after"]
    if before and after and (before[0], before[2]) == (after[0], after[2]):
        return  # the mode alone
    texts: dict[str, list[str]] = {"before": [], "after": []}
    sides = zip(texts, (before, after), kept.contents(grant, number), strict=True)
    for name, side, content in tuple(sides):
        if not side or side[0] not in "fl":
            continue
        if content is None:
            yield f"  ({name}: the content is not stored, BLAKE3 {side[2]})"
        elif side[0] == "l":
            yield f"  ({name}: a link to {content.decode(errors='backslashreplace')})"
        else:
            try:
                texts[name] = _lines(content.decode())
            except UnicodeDecodeError:
                yield f"  ({name}: {len(content)} bytes, not text, BLAKE3 {side[2]})"
    found = difflib.unified_diff(texts["before"], texts["after"], "before", "after", lineterm="")
    for count, line in enumerate(found):
        if count == _MOST_LINES:
            whole = f", BLAKE3 of all {after[2]}" if after else ""
            yield f"  (more lines differ{whole})"
            return
        yield f"  {line}"


def _lines(text: str) -> list[str]:
    """Split at line feeds only: other line separators are shown."""
    found = text.split("\n")
    last = found.pop()
    return [*found, last, "\\ No newline at end of file"] if last else found
