"""Rows of standing approvals, and the audit records that bind them.

Each grant, use and revocation has a signed audit record that binds the whole row. A row counts only
if it is the one that the newest record about it binds, and only if the records since then are those
of the signed log (`Page.proven_from`). So a row that was put back to an earlier state is refused,
whether or not its `last_seq` was put back with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from actum.approvals.standing import Binding, Decider, StandingApproval
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.os_user import OsUser
from actum.errors import Refused, VerificationFailed
from actum.evidence.log import Page
from actum.evidence.records.audit import VERSION, Kind, closed
from actum.evidence.records.bound_rows import ROWS, bound, differing
from actum.store.database import Database
from actum.value import as_dict, value

_TABLE = "standing_approvals"
#: Every column but `last_seq`, the number of the newest record about the row.
_COLUMNS = (
    *("approval_id", "tool_id", "pin", "binding", "hosts", "paths", "uses", "used", "until"),
    *("granted_at", "granted_by", "granted_uid", "granted_user", "granted_role", "granted_why"),
    *("revoked_at", "revoked_by", "revoked_uid", "revoked_user", "revoked_role", "revoked_why"),
    "last_used_by",
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM {_TABLE} "  # noqa: S608 -- constants
_TS = re.compile(rb'"ts":"([0-9T:.-]{23}Z)"')


def stored(database: Database, where: str, *values: Json) -> tuple[StandingApproval, ...]:
    """Approvals as the store has them: to show and to choose from, not to rely on."""
    rows = database.rows(_SELECT + where, values)
    return tuple(_approval(dict(zip(_COLUMNS, row, strict=True))) for row in rows)


@value
class Proven:
    """An approval as the signed log has it."""

    approval: StandingApproval
    newest: str  #: time of the newest record: it is not earlier now, whatever the clock says


def proven(page: Page, approval_id: str) -> Proven:
    """The approval; raises `Refused` unless the newest record about it binds exactly this row."""
    found = page.cursor.execute(f"SELECT * FROM {_TABLE} WHERE approval_id = ?", (approval_id,))  # noqa: S608
    names = [column[0] for column in found.description]
    values = found.fetchone()
    if values is None:
        raise _not_recorded(approval_id)
    row = dict(zip(names, values, strict=True))
    try:
        records, newest = _about(approval_id, page.proven_from(row["last_seq"]))
    except VerificationFailed as error:
        raise _not_recorded(approval_id) from error
    columns = records[0][ROWS][0]["columns"] if len(records) == 1 else {}
    if tuple(differing(_TABLE, columns, row)):
        raise _not_recorded(approval_id)
    return Proven(approval=_approval(row), newest=newest)


def insert(page: Page, approval: StandingApproval) -> None:
    """Put a new approval on record."""
    row = _row(approval)
    seq = page.append(_record(approval, "granted", approval.granted.at, _who(approval.granted)))
    names, marks = ", ".join((*row, "last_seq")), ", ".join("?" * (len(row) + 1))
    page.cursor.execute(
        f"INSERT INTO standing_approvals ({names}) VALUES ({marks})",  # noqa: S608 -- constants
        (*row.values(), seq),
    )


def update_revoked(page: Page, approval: StandingApproval, revoked: Decider) -> None:
    seq = page.append(_record(approval, "revoked", revoked.at, _who(revoked)))
    _update(page, approval, seq)


def update_used(
    page: Page, approval: StandingApproval, decided_by: str, trace_id: str, at: str
) -> None:
    used = {
        "execution_id": closed(approval.last_used_by),
        "trace_id": closed(trace_id),
        "decided_by": closed(decided_by),
        "used": approval.used,
        "uses": approval.uses,
    }
    _update(page, approval, page.append(_record(approval, "used", at, used)))


def _update(page: Page, approval: StandingApproval, seq: int) -> None:
    row = _row(approval)
    names = ", ".join(f"{name} = ?" for name in (*row, "last_seq"))
    page.cursor.execute(
        f"UPDATE standing_approvals SET {names} WHERE approval_id = ?",  # noqa: S608 -- constants
        (*row.values(), seq, approval.approval_id),
    )


def _record(
    approval: StandingApproval, event: str, at: str, more: Mapping[str, Json]
) -> dict[str, Json]:
    """The audit record: closed fields only, and the row as it is from now on."""
    return {
        "v": VERSION,
        "kind": Kind.STANDING,
        "event": event,
        "ts": at,
        "approval_id": approval.approval_id,
        "tool_id": closed(approval.tool_id),
        "pin": closed(approval.binding.pin),
        **more,
        ROWS: [bound(_TABLE, _row(approval))],
    }


def _who(decider: Decider) -> dict[str, Json]:
    return {
        "decided_by": closed(decider.by),
        "decided_uid": decider.user.uid,
        "decided_user": closed(decider.user.name),
        "decided_role": decider.role,
        "rationale_sha256": sha256_bytes(decider.why.encode("utf-8", "surrogatepass")),
    }


def _about(approval_id: str, records: Iterator[bytes]) -> tuple[list[dict[str, Json]], str]:
    """The records about one approval, and the newest time of all records."""
    found: list[dict[str, Json]] = []
    text, newest = approval_id.encode(), b""
    for record in records:
        newest = max(newest, *_TS.findall(record), b"")
        if text in record:
            document = json.loads(record)
            if (document.get("kind"), document.get("approval_id")) == (Kind.STANDING, approval_id):
                found.append(document)
    return found, newest.decode()


def _row(approval: StandingApproval) -> dict[str, Json]:
    binding = as_dict(approval.binding)
    return {
        "approval_id": approval.approval_id,
        "tool_id": approval.tool_id,
        "pin": binding.pop("pin"),
        "binding": json.dumps(binding, sort_keys=True),
        "hosts": json.dumps(approval.hosts),
        "paths": json.dumps(approval.paths),
        "uses": approval.uses,
        "used": approval.used,
        "until": approval.until,
        **_decider_columns("granted", approval.granted),
        **_decider_columns("revoked", approval.revoked),
        "last_used_by": approval.last_used_by,
    }


def _decider_columns(prefix: str, decider: Decider | None) -> dict[str, Json]:
    held: tuple[Json, ...] = (None,) * 6
    if decider is not None:
        user = decider.user
        held = (decider.at, decider.by, user.uid, user.name, decider.role, decider.why)
    names = ("at", "by", "uid", "user", "role", "why")
    return {f"{prefix}_{name}": each for name, each in zip(names, held, strict=True)}


def _approval(row: Mapping[str, Any]) -> StandingApproval:
    try:
        return StandingApproval(
            approval_id=row["approval_id"],
            tool_id=row["tool_id"],
            binding=Binding(pin=row["pin"], **json.loads(row["binding"])),
            hosts=tuple(json.loads(row["hosts"])),
            paths=tuple(json.loads(row["paths"])),
            uses=row["uses"],
            used=row["used"],
            until=row["until"],
            granted=_decider("granted", row),
            revoked=None if row["revoked_at"] is None else _decider("revoked", row),
            last_used_by=row["last_used_by"],
        )
    except (ValueError, TypeError) as error:
        raise _not_recorded(str(row["approval_id"])) from error


def _decider(prefix: str, row: Mapping[str, Any]) -> Decider:
    return Decider(
        by=row[f"{prefix}_by"],
        user=OsUser(uid=row[f"{prefix}_uid"], name=row[f"{prefix}_user"]),
        role=row[f"{prefix}_role"],
        at=row[f"{prefix}_at"],
        why=row[f"{prefix}_why"],
    )


def _not_recorded(approval_id: str) -> Refused:
    return Refused(
        "APPROVAL_NOT_RECORDED",
        f"The audit log does not hold the standing approval {approval_id} as the store has it.",
        remedy="The store was changed outside Actum. Run `actum verify --all`.",
    )
