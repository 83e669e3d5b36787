"""`actum runs`: durable runs of work files, under a persisted contract."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, id_prefix, terminal
from actum.doors.cli.contract_options import config_of, contract_options
from actum.doors.cli.interrupts import interrupted_by_signals
from actum.doors.cli.run_lines import line_of
from actum.doors.cli.run_progress import RunProgress
from actum.doors.cli.work_command import hearing, show_mismatch

if TYPE_CHECKING:
    from actum.runs.model import Run

_CODES = {"complete": 0, "failed": 1, "cancelled": 130}
_MOST_FINDINGS = 20
_REFUSALS = ("CONTRACT_MISMATCH", "UNSUPPORTED_CONTRACT", "EXECUTION_CONTRACT_MISSING")


@click.group("runs", cls=command_table.Group, short_help="Durable runs of work files.")
def command() -> None:
    """Submit, look at, continue, fork, cancel and judge durable runs."""


@command.command("submit")
@click.argument("file", metavar="WORK.yaml", type=click.Path(dir_okay=False, path_type=Path))
@contract_options
@click.option("--priority", type=int, default=0, metavar="N", help="Higher goes first.")
@click.option("--wait", is_flag=True, help="Wait for the end; without a worker, be the worker.")
def submit(
    file: Path, profile: str | None, fields: Sequence[str], priority: int, wait: bool
) -> int:
    """Queue a run of a work file, and print its id.

    \b
    actum runs submit work.yaml --profile ci
    actum runs submit work.yaml --set maxFilesPerStep=5 --wait
    """
    if not file.is_file():
        raise click.UsageError(f"There is no file {file}.")
    config = config_of(profile, fields)
    if wait:
        with command_table.open_runtime() as runtime:
            run = runtime.runs.submit(file, config=config, priority=priority)
            terminal.aside(f"run {run.run_id}")
            return _carried_out(runtime, run.run_id)
    with command_table.open_queue() as queue:
        run = queue.runs.submit(file, config=config, priority=priority)
        if command_table.wants_json():
            terminal.document(queue.runs.status(run.run_id))
        else:
            terminal.line(run.run_id)
            terminal.aside("Queued. `actum worker` carries it out.")
    return exit_codes.SUCCESS


def _full(runtime: Any, run_id: str) -> str:
    return id_prefix.full_id(runtime.runs.ledger.tables, run_id, id_prefix.RUNS)


def _carried_out(runtime: Any, run_id: str) -> int:
    items = len(runtime.runs.plan(run_id).items)
    with interrupted_by_signals(), hearing("  ") as hear:
        hear({"at": "begun", "run": run_id, "of": items})
        runtime.runs.work(run_id, on_event=hear)
    return _show(runtime.runs.status(run_id), full=False)


@command.command("status")
@click.argument("run_id", metavar="RUN")
@click.option("--exit-status", is_flag=True, help="Exit 1 while the run has not ended.")
def status(run_id: str, exit_status: bool) -> int:
    """Everything about a run: contract, steps, error. Checks the stored contract."""
    with command_table.open_queue() as queue:
        run_id = _full(queue, run_id)
        document = queue.runs.status(run_id)
    code = _show(document, full=True)
    if exit_status and document["status"] not in _CODES:
        return exit_codes.FAILED
    return code


@command.command("list")
@click.option(
    "--status",
    "wanted",
    type=click.Choice(
        [
            *("queued", "running", "correcting", "optimizing", "validating"),
            *("complete", "failed", "cancelled"),
        ]
    ),
    help="Only runs in this state.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, metavar="N")
def list_(wanted: str | None, limit: int) -> int:
    """Runs, the newest first."""
    with command_table.open_queue() as queue:
        runs = queue.runs.list(status=wanted, limit=limit)
    if command_table.wants_json():
        terminal.document({"runs": [_row(run) for run in runs]})
        return exit_codes.SUCCESS
    for run in runs:
        more = run.error_code or run.blocked_code or ""
        terminal.line(f"{run.run_id}  {run.status.value:<10}  {run.created_at}  {more}".rstrip())
    if not runs:
        terminal.line("No runs.")
    return exit_codes.SUCCESS


def _row(run: Run) -> dict[str, Any]:
    return {
        "runId": run.run_id,
        "status": run.status.value,
        "createdAt": run.created_at,
        "endedAt": run.ended_at,
        "error": run.error_code,
        "blocked": run.blocked_code,
        "forkedFrom": run.forked_from,
        "priority": run.priority,
    }


@command.command("continue")
@click.argument("run_id", metavar="RUN")
@contract_options
@click.option(
    "--override-execution-config",
    "override",
    is_flag=True,
    help="Change this run's contract to the requested one.",
)
@click.option("--fork", is_flag=True, help="Start a new run with the requested contract.")
@click.option("--wait", is_flag=True, help="Wait for the end; without a worker, be the worker.")
def continue_(
    run_id: str,
    profile: str | None,
    fields: Sequence[str],
    override: bool,
    fork: bool,
    wait: bool,
) -> int:
    """Continue a failed or cancelled run under its persisted contract, or fork any ended one."""
    if override and fork:
        raise click.UsageError("--override-execution-config and --fork exclude each other.")
    from actum.runs.durable_runs import RunMismatch

    with command_table.open_runtime() as runtime:
        run_id = _full(runtime, run_id)
        try:
            run = runtime.runs.resume(
                run_id, config=config_of(profile, fields), override=override, fork=fork
            )
        except RunMismatch as mismatch:
            return show_mismatch(mismatch)
        if wait:
            return _carried_out(runtime, run.run_id)
        if command_table.wants_json():
            terminal.document(runtime.runs.status(run.run_id))
        else:
            terminal.line(run.run_id)
    return exit_codes.SUCCESS


@command.command("cancel")
@click.argument("run_id", metavar="RUN")
def cancel(run_id: str) -> int:
    """End a run. Steps that were committed stay committed."""
    with command_table.open_queue() as queue:
        run_id = _full(queue, run_id)
        run = queue.runs.cancel(run_id)
        if command_table.wants_json():
            terminal.document(queue.runs.status(run_id))
        else:
            queued = run.status.value == "cancelled"
            terminal.line("Cancelled." if queued else "Cancelling: its worker ends it.")
    return exit_codes.SUCCESS


@command.command("validate")
@click.argument("run_id", metavar="RUN")
def validate(run_id: str) -> int:
    """Run the heavy validators of a complete run once more."""
    with command_table.open_runtime() as runtime:
        run_id = _full(runtime, run_id)
        passed = runtime.runs.validate(run_id)
        if command_table.wants_json():
            terminal.document(runtime.runs.status(run_id))
        else:
            terminal.line("passed" if passed else "failed")
    return exit_codes.SUCCESS if passed else exit_codes.FAILED


@command.command("watch")
@click.argument("run_id", metavar="RUN")
def watch(run_id: str) -> int:
    """One line for each change of a run, until it ends. Carries nothing out.

    With --json, one JSON document per line; the last one is the status of the run.
    """
    with command_table.open_runtime() as runtime:
        run_id = _full(runtime, run_id)
        if command_table.wants_json():
            for event in runtime.runs.follow(run_id):
                terminal.json_line(event)
            document = runtime.runs.status(run_id)
            terminal.json_line({"at": "end", **document})
            return _code_of(document)
        items = len(runtime.runs.plan(run_id).items)
        with RunProgress() as progress:
            progress({"at": "begun", "run": run_id, "of": items})
            for event in runtime.runs.follow(run_id):
                progress.say_step(event)
        return _show(runtime.runs.status(run_id), full=False)


@command.command("gate")
@click.argument("run_id", metavar="RUN")
def gate(run_id: str) -> int:
    """The governance decision: PASS (exit 0) or FAIL (exit 1) with codes, also as a file."""
    with command_table.open_runtime() as runtime:
        run_id = _full(runtime, run_id)
        decision = runtime.runs.gate(run_id)
    document = dict(decision.document)
    if command_table.wants_json():
        terminal.document(document)
    else:
        codes = ", ".join(map(str, document["reasonCodes"]))
        terminal.line(f"{document['decision']} {codes}".rstrip())
    return exit_codes.SUCCESS if decision.passed else exit_codes.FAILED


def _show(document: Mapping[str, Any], *, full: bool) -> int:
    """Print a run, and return the exit code of its state."""
    if command_table.wants_json():
        terminal.document(dict(document))
    else:
        _print(document, full=full)
    return _code_of(document)


def _code_of(document: Mapping[str, Any]) -> int:
    error = document["error"]
    if error is not None and error["code"] in _REFUSALS:
        return exit_codes.REFUSED
    if document["executionContract"]["verified"] != "OK":
        return exit_codes.REFUSED
    return _CODES.get(document["status"], 0)


def _print(document: Mapping[str, Any], *, full: bool) -> None:
    from actum.runs.show import key_value_lines

    error, contract = document["error"], document["executionContract"]
    terminal.line(f"run {document['runId']} {document['status']}")
    if error is not None:
        terminal.line(f"error {error['code']}: {error['message'] or ''}".rstrip(": "))
    if document["blocked"]:
        terminal.line(f"blocked {document['blocked']}")
    if contract["verified"] != "OK":
        terminal.line(f"contract {contract['verified']}")
    for step in document["steps"]:
        name = f" {step['itemId']}" if step["itemId"] else ""
        codes = f" ({', '.join(step['codes'])})" if step["codes"] else ""
        terminal.line(
            f"  {step['index']:>3} {step['kind']}{name} attempt {step['attempt']}:"
            f" {step['status'] or step['state']}{codes}"
        )
        for line in _why(step):
            terminal.line(f"        {line}")
    if full:
        for line in key_value_lines(dict(document)):
            terminal.line(line)


def _why(step: Mapping[str, Any]) -> list[str]:
    """Why a step did not succeed: the reason of an item, the findings of validators."""
    if step["status"] in ("success", "passed"):
        return []
    lines = [str(step["reason"])] if step["reason"] else []
    lines += [
        f"{found['validator']}: {found['code']} {found['path']}".rstrip()
        for found in step["findings"][:_MOST_FINDINGS]
    ]
    if len(step["findings"]) > _MOST_FINDINGS:
        lines.append(f"and {len(step['findings']) - _MOST_FINDINGS} more findings (--json has all)")
    lines += [
        f"{each['id']}: {each['outcome']}; `actum receipts show {each['receipt_id']}`"
        for each in step["executions"]
        if each["outcome"] != "SUCCEEDED"
    ]
    return lines


def tell(event: Mapping[str, Any]) -> None:
    """One line for each event."""
    line = line_of(event)
    if line is not None:
        terminal.aside(f"  {line}")
    elif event["at"] == "over":
        terminal.aside(f"run {event['run']} {event['status']} {event['code'] or ''}".rstrip())
    elif event["at"] in ("claimed", "refused"):
        terminal.aside(f"run {event['run']} {event['at']} {event.get('code', '')}".rstrip())


def until_signal() -> threading.Event:
    """Set by SIGINT and SIGTERM: take no new run, end the current ones."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
