"""`actum approvals`: requests that wait for a person's decision, and decisions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from actum.contract.approvers import ANY_USER
from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, standing_text, table, terminal
from actum.policy.gates import GOVERNING_CHANGES
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.approvals.requests import Request
    from actum.approvals.standing import StandingApproval
    from actum.contract.os_user import OsUser
    from actum.execution.transactions import Transactions
    from actum.runtime import Runtime


#: Parts of the call; shown while it is stored.
_SHOWN = ("call", "grants", "adds", "scope")
#: States of changes whose commit was approved.
_DONE = ("committed", "unchanged")


@click.group("approvals", cls=command_table.Group)
def command() -> None:
    """List and decide requests that wait for a person's decision; grant standing approvals."""


@command.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Include what is decided, used, expired or ended."
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="How many."
)
def list_approvals(*, everything: bool, limit: int) -> int:
    """List requests, escalations and standing approvals, newest first."""
    with command_table.open_runtime() as runtime:
        found = runtime.approvals.latest(undecided=not everything, limit=limit)
        listed = runtime.approvals.approvers().listed
        standing = [
            (approval, runtime.standing_approvals.why_ended(approval))
            for approval in runtime.standing_approvals.latest(ended=everything, limit=limit)
        ]
    if command_table.wants_json():
        terminal.document(
            {
                "approvals": [_document(request) for request in found],
                "standing": [standing_text.document(*each) for each in standing],
                "approvers": {name: as_dict(each) for name, each in listed.items()},
                "any_user_decides": not listed,
            }
        )
        return exit_codes.SUCCESS
    if not listed:
        terminal.aside(
            "actum: actum.toml has no [approvers]: any user who can write this project decides."
        )
    if standing:
        table.show(standing_text.COLUMNS, [standing_text.cells(*each) for each in standing])
        terminal.line()
    if not found:
        terminal.line("Nothing waits for a decision.")
        return exit_codes.SUCCESS
    table.show(
        (
            *(table.ids("REQUEST"), table.whole("KIND"), table.states("STATE")),
            *(table.whole("GATE"), "BY", "DECIDED", table.whole("EXPIRES"), "WHAT"),
        ),
        [
            (
                request.request_id,
                request.kind,
                request.state.value,
                request.gate,
                request.requested_by,
                _decided(request),
                request.expires_at if request.kind == "request" else "",
                f"{request.need.operation} {request.need.target}",
            )
            for request in found
        ],
    )
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("request_id", metavar="ID")
def show_approval(request_id: str) -> int:
    """Show a request: the whole call, the rights it would get, who asked, and the decision.

    Or show a standing approval, and why it has ended.

    The decision is bound to exactly what is shown. Of a long or binary input that is the beginning
    and the digest. The call is stored until the request is used, denied or expired.
    """
    with command_table.open_runtime() as runtime:
        request_id = _full(runtime, request_id, standing=True)
        standing = runtime.standing_approvals.get(request_id)
        if standing is not None:
            return _show_standing(standing, runtime.standing_approvals.why_ended(standing))
        request = runtime.approvals.find(request_id)
        if request.gate == GOVERNING_CHANGES:
            return _show_changes(request, runtime.transactions)
        call = runtime.approvals.call_of(request)
    if command_table.wants_json():
        shown = {name: call[name] if call else None for name in _SHOWN}
        terminal.document({**_document(request), **shown})
        return exit_codes.SUCCESS
    from actum.doors.cli.approval_text import call_lines

    for name, value in _flat(_document(request)):
        terminal.line(f"{name}: {terminal.one_line(value)}")
    for line in call_lines(request, call):
        terminal.line(line)
    return exit_codes.SUCCESS


def _show_standing(approval: StandingApproval, ended: str) -> int:
    document = standing_text.document(approval, ended)
    if command_table.wants_json():
        terminal.document(document)
        return exit_codes.SUCCESS
    for name, value in _flat(document):
        terminal.line(f"{name}: {terminal.one_line(value)}")
    return exit_codes.SUCCESS


@command.command("grant")
@click.argument("tool", metavar="TOOL")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A host to reach; repeatable.")
@click.option("--path", "paths", multiple=True, metavar="PATH", help="A path to write; repeatable.")
@click.option("--uses", type=int, metavar="N", help="How many executions may use it.")
@click.option(
    "--until",
    type=standing_text.moment,
    metavar="AGE|DATE",
    help="How long from now (12h, 30d), or a time; a date means its end, UTC.",
)
@click.option("--by", required=True, metavar="WHO", help="Who decides; not who will ask.")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
def grant(
    *,
    tool: str,
    hosts: tuple[str, ...],
    paths: tuple[str, ...],
    uses: int | None,
    until: datetime | timedelta | None,
    by: str,
    why: str,
) -> int:
    """Let later calls of TOOL reach these hosts and write these paths without a request.

    It ends with its uses, at its time, when it is revoked, and when the tool, its scope or the
    settings change. The tool's approved scope is not widened.
    """
    with command_table.open_runtime() as runtime:
        approval = runtime.standing_approvals.grant(
            tool, hosts=hosts, paths=paths, uses=uses, until=until, by=by, why=why
        )
    if command_table.wants_json():
        terminal.document(standing_text.document(approval, ""))
        return exit_codes.SUCCESS
    terminal.line(f"{approval.approval_id} granted by {by}: {standing_text.bounds(approval)}.")
    return exit_codes.SUCCESS


@command.command("revoke")
@click.argument("approval_id", metavar="ID")
@click.option("--by", required=True, metavar="WHO", help="Who decides.")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
def revoke(approval_id: str, by: str, why: str) -> int:
    """End a standing approval. An execution that has started is not stopped."""
    with command_table.open_runtime() as runtime:
        approval_id = _full(runtime, approval_id, standing=True)
        approval = runtime.standing_approvals.revoke(approval_id, by=by, why=why)
        ended = runtime.standing_approvals.why_ended(approval)
    if command_table.wants_json():
        terminal.document(standing_text.document(approval, ended))
        return exit_codes.SUCCESS
    used = "once" if approval.used == 1 else f"{approval.used} times"
    terminal.line(f"{approval_id} revoked by {by}; it was used {used}.")
    return exit_codes.SUCCESS


def _show_changes(request: Request, transactions: Transactions) -> int:
    """Show files that an execution has changed; an approval commits them."""
    from actum.doors.cli import diff_command

    kept = transactions.shown_for(request)
    lines = list(diff_command.lines(kept)) if kept else None
    if command_table.wants_json():
        changes = kept.changes if kept else None
        held = list(kept.why) if kept else None
        terminal.document({**_document(request), "held": held, "changes": changes, "diff": lines})
        return exit_codes.SUCCESS
    for name, value in _flat(_document(request)):
        terminal.line(f"{name}: {terminal.one_line(value)}")
    if kept is None or lines is None:
        lost = request.state == "pending"
        terminal.line(
            "changes: lost or changed."
            if lost
            else "changes: no longer stored as they were requested."
        )
        return exit_codes.SUCCESS
    for path in kept.why:
        terminal.line(f"decides what is executed later: {terminal.one_line(path)}")
    for line in lines:
        terminal.line(terminal.one_line(line))
    return exit_codes.SUCCESS


@command.command("approve")
@click.argument("request_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--by", required=True, metavar="WHO", help="Who decides; not who asked.")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
def approve(request_ids: tuple[str, ...], by: str, why: str) -> int:
    """Let exactly this call run, once, before the request expires."""
    return _decide(request_ids, by, why, allow=True)


@command.command("deny")
@click.argument("request_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--by", required=True, metavar="WHO", help="Who decides; not who asked.")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
def deny(request_ids: tuple[str, ...], by: str, why: str) -> int:
    """Deny the request; the same call is refused until the request expires."""
    return _decide(request_ids, by, why, allow=False)


def _decide(request_ids: tuple[str, ...], by: str, why: str, *, allow: bool) -> int:
    from actum.evidence.records.audit import Decision

    decision = Decision.ALLOW if allow else Decision.DENY
    with command_table.open_runtime() as runtime:
        # The answer names every decided request by its whole id.
        request_ids = tuple(_full(runtime, request_id) for request_id in request_ids)
        for request_id in request_ids if allow else ():
            runtime.transactions.require_shown(request_id)
        decided = [
            runtime.approvals.decide(request_id, decision, by=by, why=why)
            for request_id in request_ids
        ]
        settled = {
            request.request_id: runtime.transactions.approved(request)
            for request in decided
            if request.gate == GOVERNING_CHANGES
        }
    # Approved changes can still conflict with those of other programs.
    done = not allow or all(state in _DONE for state in settled.values())
    code = exit_codes.SUCCESS if done else exit_codes.REFUSED
    if command_table.wants_json():
        documents = [
            {**_document(request), "changes_state": settled.get(request.request_id)}
            for request in decided
        ]
        terminal.document({"approvals": documents})
        return code
    for request in decided:
        if request.request_id in settled:
            state = settled[request.request_id]
            terminal.line(f"{request.request_id} {request.state}: changes {state}.")
            continue
        until = f", once, until {request.expires_at}" if allow else ""
        terminal.line(f"{request.request_id} {request.state} by {request.decided_by}{until}.")
    return code


def _full(runtime: Runtime, request_id: str, *, standing: bool = False) -> str:
    from actum.doors.cli.id_prefix import full_id
    from actum.evidence.id_prefixes import IdKind

    kinds = (IdKind.REQUEST, IdKind.STANDING_APPROVAL) if standing else (IdKind.REQUEST,)
    return full_id(runtime.database, request_id, kinds)


def _flat(document: dict[str, Json], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            lines += _flat(value, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append((prefix + name, text))
    return lines


def _document(request: Request) -> dict[str, Json]:
    """The words of an approval request and its response."""
    plain = as_dict(request)
    more = plain.pop("document")
    return {
        "request_id": plain.pop("request_id"),
        "kind": plain.pop("kind"),
        "gate_type": plain.pop("gate"),
        "state": plain.pop("state").value,
        **more,
        **plain,
        "same_user": request.granted.same_user,
    }


def _decided(request: Request) -> str:
    if request.decided_by is None:
        return ""
    same = ", same user asked" if request.granted.same_user else ""
    role = request.granted.role
    having = f", role {role}" if role not in (None, ANY_USER) else ""
    return f"{request.decided_by} ({_user(request.decided_as)}{having}{same})"


def _user(user: OsUser | None) -> str:
    return "user unknown" if user is None else f"user {user.name}"
