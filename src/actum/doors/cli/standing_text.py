"""Standing approvals on the command line: how they are shown, and how their end is written."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from actum.contract.approvers import ANY_USER
from actum.contract.model import Json
from actum.doors.cli import table, time_options
from actum.doors.cli.terminal import one_line
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.approvals.standing import StandingApproval

COLUMNS = (
    *(table.ids("STANDING"), table.whole("TOOL"), table.states("STATE")),
    *(table.whole("USES LEFT"), table.whole("UNTIL"), "GRANTED BY", "WHAT"),
)


def document(approval: StandingApproval, ended: str) -> dict[str, Json]:
    shown: dict[str, Json] = as_dict(approval)
    return {
        "approval_id": shown.pop("approval_id"),
        "kind": "standing",
        "state": "ended" if ended else "active",
        "ended": ended or None,
        **shown,
        "hosts": list(approval.hosts),
        "paths": list(approval.paths),
        "uses_left": approval.uses_left,
    }


def cells(approval: StandingApproval, ended: str) -> tuple[str, ...]:
    granted, left = approval.granted, approval.uses_left
    role = f", role {granted.role}" if granted.role != ANY_USER else ""
    return (
        approval.approval_id,
        approval.tool_id,
        "ended" if ended else "active",
        "any" if left is None else f"{left} of {approval.uses}",
        approval.until or "",
        f"{granted.by} (user {granted.user.name}{role})",
        f"{_what(approval)} (ended: {ended})" if ended else _what(approval),
    )


def bounds(approval: StandingApproval) -> str:
    """What it permits, how often and until when."""
    uses = [] if approval.uses is None else [f"{approval.uses} uses"]
    until = [] if approval.until is None else [f"until {approval.until}"]
    return one_line(f"{approval.tool_id} may {_what(approval)}, {' and '.join((*uses, *until))}")


def _what(approval: StandingApproval) -> str:
    parts = []
    if approval.hosts:
        parts.append(f"reach {', '.join(approval.hosts)}")
    if approval.paths:
        parts.append(f"write {', '.join(approval.paths)}")
    return " and ".join(parts)


def moment(text: str) -> datetime | timedelta:
    """The value of --until: a length from now, or a point in time. A date means its end."""
    if time_options.is_age(text):
        return time_options.age(text)
    found = time_options.moment(text)
    whole_day = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text)
    try:
        return found + timedelta(days=1) if whole_day else found
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is beyond the calendar.") from error
