"""`actum approvals`: what waits for a person's decision, and the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words
from actum.policy.gates import GOVERNING_CHANGES
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.contract.os_user import OsUser
    from actum.engine.approvals import Request
    from actum.engine.transactions import Transactions


#: What is known of the call; nothing once it is not kept any more.
_SHOWN = ("call", "grants", "adds", "scope")


@click.group("approvals", cls=words.Group)
def command() -> None:
    """What waits for a person's decision."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what is decided, used or expired.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="How many."
)
def list_approvals(*, everything: bool, limit: int) -> int:
    """Requests and escalations, newest first."""
    with words.open_runtime() as runtime:
        found = runtime.approvals.latest(undecided=not everything, limit=limit)
    if words.wants_json():
        say.document({"approvals": [_document(request) for request in found]})
        return exit_codes.SUCCESS
    if not found:
        say.line("Nothing waits for a decision.")
        return exit_codes.SUCCESS
    say.table(
        ("REQUEST", "KIND", "STATE", "GATE", "BY", "DECIDED", "EXPIRES", "WHAT"),
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
    """One request: the whole call, what it would be allowed, by whom, and what was decided.

    The decision is bound to exactly what is shown. Of a long or binary input that is the beginning
    and the digest. The call is kept until the request is used, denied or expired.
    """
    with words.open_runtime() as runtime:
        request = runtime.approvals.find(request_id)
        if request.gate == GOVERNING_CHANGES:
            return _show_changes(request, runtime.transactions)
        call = runtime.approvals.call_of(request)
    if words.wants_json():
        shown = {name: call[name] if call else None for name in _SHOWN}
        say.document({**_document(request), **shown})
        return exit_codes.SUCCESS
    from actum.doors.cli.approval_text import call_lines

    for name, value in _flat(_document(request)):
        say.line(f"{name}: {say.one_line(value)}")
    for line in call_lines(request, call):
        say.line(line)
    return exit_codes.SUCCESS


def _show_changes(request: Request, transactions: Transactions) -> int:
    """Files that an execution has changed; what is approved is that they are committed."""
    from actum.doors.cli import diff
    from actum.errors import Refused

    try:
        kept = transactions.find(request.need.target)
    except Refused:
        kept = None  # decided, and not kept any more
    if words.wants_json():
        say.document({**_document(request), "changes": kept.changes if kept else None})
        return exit_codes.SUCCESS
    for name, value in _flat(_document(request)):
        say.line(f"{name}: {say.one_line(value)}")
    for line in diff.lines(kept) if kept else ():
        say.line(say.one_line(line))
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
    """Refuse it; the same call is refused until the request expires."""
    return _decide(request_ids, by, why, allow=False)


def _decide(request_ids: tuple[str, ...], by: str, why: str, *, allow: bool) -> int:
    from actum.evidence.audit import Decision

    decision = Decision.ALLOW if allow else Decision.DENY
    with words.open_runtime() as runtime:
        decided = [
            runtime.approvals.decide(request_id, decision, by=by, why=why)
            for request_id in request_ids
        ]
        settled = {
            request.request_id: runtime.transactions.approved(request)
            for request in decided
            if request.gate == GOVERNING_CHANGES
        }
    if words.wants_json():
        say.document({"approvals": [_document(request) for request in decided]})
        return exit_codes.SUCCESS
    for request in decided:
        if request.request_id in settled:
            state = settled[request.request_id]
            say.line(f"{request.request_id} {request.state}: changes {state}.")
            continue
        until = f", once, until {request.expires_at}" if allow else ""
        say.line(f"{request.request_id} {request.state} by {request.decided_by}{until}.")
    return exit_codes.SUCCESS


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
    return f"{request.decided_by} ({_user(request.decided_as)}{same})"


def _user(user: OsUser | None) -> str:
    return "user unknown" if user is None else f"user {user.name}"
