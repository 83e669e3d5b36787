"""`actum executors`: pure executors, which are functions without effects: list, review, call."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli import command_table, exit_codes, table, terminal

if TYPE_CHECKING:
    from actum.executors.model import ActionResult
    from actum.executors.verdicts import Review


@click.group("executors", cls=command_table.Group)
def command() -> None:
    """Pure functions under a contract: list, review, call, create."""


@command.command("list")
def list_executors() -> int:
    """List every executor of the project, and every file without a verdict."""
    with command_table.open_runtime() as runtime:
        registry = runtime.executors.registry
        registered = [(each.declared, each.origin) for each in registry.executors.values()]
        others = registry.not_registered
        actions = registry.actions
        walls = runtime.executors.pool.walls
    if command_table.wants_json():
        terminal.document(
            {
                "executors": [{**d.document(), "origin": origin} for d, origin in registered],
                "not_registered": [
                    {"file": each.file, "origin": each.origin, "code": each.code} for each in others
                ],
                "actions": {name: each.document() for name, each in actions.actions.items()},
                "walls": list(walls),
            }
        )
        return exit_codes.SUCCESS
    table.show(
        ("ID", "VERSION", "CAPABILITIES", "TIMEOUT", "FROM"),
        [
            (
                declared.executor_id,
                declared.version,
                ", ".join(declared.capabilities) or "-",
                f"{declared.limits.timeout_ms} ms",
                origin,
            )
            for declared, origin in registered
        ],
    )
    for each in others:
        terminal.aside(
            f"{each.origin}: {each.code}: {each.message}. `actum executors review` decides."
        )
    return exit_codes.SUCCESS


@command.command("review")
@click.argument(
    "path", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="PATH"
)
@click.option("--by", metavar="WHO", help="Who is responsible for the review; otherwise you.")
def review_executor(path: Path, by: str | None) -> int:
    """Review a file. The verdict is signed and recorded, approved or not."""
    with command_table.open_runtime() as runtime:
        review = runtime.executors.review(path, by=by or f"user:{runtime.settings.login}")
        at_home = path.resolve().parent == runtime.executors.folder.resolve()
    if command_table.wants_json():
        terminal.document({**review.document(), "registered": review.approved and at_home})
    else:
        _say_review(review, at_home=at_home)
    return exit_codes.SUCCESS if review.approved else exit_codes.FAILED


def _say_review(review: Review, *, at_home: bool) -> None:
    for check in review.checks:
        remark = f" ({check.remark})" if check.remark else ""
        terminal.line(f"{'yes' if check.passed else 'NO '}  {check.name}{remark}")
        for objection in check.objections:
            terminal.line(f"       {review.file}: {objection}")
    if not review.approved:
        terminal.line("Rejected. Nothing is registered. Fix the problems above and review again.")
    elif at_home and review.declared:
        terminal.line(f"Approved: `actum executors call {review.declared.executor_id}`.")
    else:
        terminal.line(f"Approved. Copy it to executors/{review.file} to register it.")


@command.command("call")
@click.argument("name", metavar="ID")
@click.option("-p", "pairs", multiple=True, metavar="NAME=JSON", help="One value of the payload.")
@click.option("--payload", metavar="JSON|@FILE|-", help="The whole payload.")
@click.option("--profile", default="default", show_default=True, help="The caller's profile.")
@click.option("--value", is_flag=True, help="Print the output itself, to this terminal only.")
def call_executor(
    name: str, pairs: tuple[str, ...], payload: str | None, profile: str, value: bool
) -> int:
    """Call an executor, or an action, by its name. The result holds digests only."""
    given = {**_whole(payload), **dict(_pair(text) for text in pairs)}
    with command_table.open_runtime() as runtime:
        result = runtime.act({"action": name, "payload": given}, profile=profile)
        output = runtime.act_value(result) if value else None
        note = runtime.executors.note(result)
    if command_table.wants_json():
        terminal.document({**result.document(), **({"value": output} if value else {})})
        return _exit_code(result)
    if value and result.status == "SUCCESS":
        terminal.readable(output)
    said = [result.status.value, *result.reason_codes, *([str(note)] if note else [])]
    said.append(f"output {result.output_digest}" if result.output_digest else "no output")
    terminal.aside(f"actum: {' · '.join(said)} · trace {result.trace_id}")
    return _exit_code(result)


def _exit_code(result: ActionResult) -> int:
    if result.status == "SUCCESS":
        return exit_codes.SUCCESS
    if result.status == "FAILED":
        return exit_codes.FAILED
    if "AUDIT_LOG_FAILED" in result.reason_codes:
        return exit_codes.FAULT
    return exit_codes.TIMED_OUT if "EXECUTOR_TIMEOUT" in result.reason_codes else exit_codes.REFUSED


def _whole(payload: str | None) -> dict[str, Any]:
    if payload is None:
        return {}
    if payload == "-":
        payload = sys.stdin.read()
    elif payload.startswith("@"):
        payload = _text(Path(payload[1:]))
    document = _json(payload, "--payload")
    if not isinstance(document, dict):
        raise click.UsageError("--payload must be a JSON object.")
    return document


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--payload: {path} cannot be read: {error}.") from error


def _pair(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"-p {text}: write NAME=VALUE, the value as JSON.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a plain word needs no quotes


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option} is not JSON: {error}.") from error


@command.command("new")
@click.argument("name")
def new_executor(name: str) -> int:
    """Create an executor below executors/ and its test, ready for review."""
    from actum.executors.scaffold import start

    with command_table.open_runtime() as runtime:
        folder = runtime.executors.folder
    files = {folder / file: text for file, text in start(name).items()}
    there = [str(file) for file in files if file.exists()]
    if there:
        raise click.UsageError(f"{', '.join(there)} exists already; choose another name.")
    folder.mkdir(exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    following = f"actum executors review {os.path.relpath(folder / f'{name}.py')}"
    if command_table.wants_json():
        terminal.document({"made": [str(file) for file in files], "next": following})
        return exit_codes.SUCCESS
    for file in files:
        terminal.line(f"Made {os.path.relpath(file)}")
    terminal.line(f"Next: {following}")
    return exit_codes.SUCCESS
