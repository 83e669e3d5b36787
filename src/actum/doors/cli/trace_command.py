"""`actum trace`: the events of one execution, in order."""

from __future__ import annotations

import json

import click

from actum.doors.cli import command_table, exit_codes, table, terminal
from actum.errors import Refused


@click.command("trace", cls=command_table.Command)
@click.argument("wanted", metavar="ID")
def command(wanted: str) -> int:
    """Show the events of an execution, by the id of the execution, its trace or its receipt."""
    from actum.doors.cli.id_prefix import EXECUTIONS, full_id
    from actum.evidence.id_prefixes import IdKind
    from actum.evidence.traces import Traces

    with command_table.open_runtime() as runtime:
        wanted = full_id(runtime.database, wanted, (*EXECUTIONS, IdKind.TRACE))
        traces = Traces(runtime.database)
        kept = runtime.services.receipts.get(wanted)
        if kept is not None:
            events = traces.of_receipt(kept.execution_id, kept.receipt_id)
        else:
            events = traces.of_execution(wanted) or traces.of_trace(wanted)
        known = kept is not None or runtime.services.executions.get(wanted) is not None
    if not events and not known:
        raise Refused(
            "TRACE_UNKNOWN",
            f"Nothing here has the id {wanted[:80]!r}.",
            remedy="`actum receipts list` shows the executions there are.",
        )
    if command_table.wants_json():
        terminal.document({"events": list(events)})
        return exit_codes.SUCCESS
    if not events:
        terminal.line("No events: it was refused before a runner was called.")
        return exit_codes.SUCCESS
    table.show(
        (
            *(table.whole("TIME"), table.whole("EVENT"), table.whole("ATTEMPT")),
            *(table.whole("TOOL"), table.whole("RUNNER"), table.states("OUTCOME")),
            *(table.whole("TOOK"), table.whole("DATA")),
        ),
        [
            (
                event["ts"],
                event["event_type"],
                str(event["attempt"]),
                event["tool_id"],
                event["runner_type"],
                event["outcome"] or "",
                "" if event["duration_ms"] is None else f"{event['duration_ms']} ms",
                json.dumps(event["data"], ensure_ascii=False) if event["data"] else "",
            )
            for event in events
        ],
    )
    return exit_codes.SUCCESS
