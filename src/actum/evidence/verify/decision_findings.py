"""Compares the approvals that a receipt names with the audit log.

Changes that were held are decided after their receipt is signed. Only the audit log names the
decider of such a decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from actum.contract.approvers import ANY_USER
from actum.contract.model import Json
from actum.evidence.records.audit import Decision, Kind, closed
from actum.evidence.verify.findings import Finding
from actum.policy.gates import GOVERNING_CHANGES, STANDING
from actum.store.database import Database


def decision_findings(
    subject: str, predicate: Mapping[str, Json], database: Database | None
) -> Iterator[Finding]:
    """One for each decision that an execution rests on, with who took it. Without the store of its
    home, what the receipt itself says."""
    for decision in predicate.get("decisions", ()):
        who = _who(decision)
        recorded = database is None or _is_recorded(decision, predicate, database)
        detail = who if recorded else f"the audit log has no such decision: {who}"
        yield Finding(subject, "approval", recorded, detail)
    if database is not None and (predicate.get("workspace") or {}).get("state") == "held":
        yield from _about_changes(subject, predicate["execution_id"], database)


def _who(decision: Mapping[str, Json]) -> str:
    same = "; the same user asked and approved" if decision["same_user"] else ""
    by = decision["decided_by"]
    granted = f"standing approval {by.removeprefix(STANDING)}, granted by "
    standing = granted if by.startswith(STANDING) else ""
    named = _named({**decision, "decided_by": decision.get("granted_by", by)})
    return f"{decision['gate']} by {standing}{named}{_in_role(decision.get('role'))}{same})"


def _named(decision: Mapping[str, Json]) -> str:
    user = decision["decided_user"]
    known = "user unknown" if user is None else f"user {user}, uid {decision['decided_uid']}"
    return f"{decision['decided_by']} ({known}"


def _in_role(role: Json) -> str:
    if role is None:
        return ""  # of an earlier version
    if role == ANY_USER:
        return "; no [approvers], so any user could decide"
    return f"; role {role}"


def recorded_decision(record: Mapping[str, Json]) -> str:
    """Who took a decision, as its audit record says."""
    uid, verb = record.get("decided_uid"), _VERBS.get(str(record.get("decision")), "decided")
    same = uid is not None and uid == record.get("requested_uid")
    named = _named({"decided_user": None, "decided_uid": None, **record})
    role = _in_role(record.get("decided_role"))
    asked = f"; the same user asked and {verb}" if same else ""
    return f"{record['gate']} {verb} by {named}{role}{asked})"


_VERBS = {Decision.ALLOW.value: "approved", Decision.DENY.value: "denied"}


def _about_changes(subject: str, execution_id: str, database: Database) -> Iterator[Finding]:
    rows = database.rows(
        "SELECT audit.record, approvals.request_id FROM approvals"
        " JOIN audit ON audit.seq = approvals.decision_seq"
        " WHERE approvals.gate = ? AND json_extract(approvals.document, '$.execution_id') = ?"
        " ORDER BY approvals.rowid",
        (GOVERNING_CHANGES, execution_id),
    )
    for text, request_id in rows:
        record = json.loads(text)
        expected = (Kind.APPROVAL, GOVERNING_CHANGES, request_id)
        found = (record.get("kind"), record.get("gate"), record.get("request_id"))
        if found == expected:
            yield Finding(subject, "changes", True, recorded_decision(record))
        else:
            detail = f"the audit log has no such decision about the request {request_id}"
            yield Finding(subject, "changes", False, detail)


def _is_recorded(
    decision: Mapping[str, Json], predicate: Mapping[str, Json], database: Database
) -> bool:
    if str(decision["decided_by"]).startswith(STANDING):
        return _is_use_recorded(decision, predicate, database)
    row = database.row(
        "SELECT audit.record FROM approvals JOIN audit ON audit.seq = approvals.decision_seq"
        " WHERE request_id = ?",
        (decision["request_id"],),
    )
    record = json.loads(row[0]) if row else {}
    user = decision["decided_user"]
    expected = {
        "kind": Kind.APPROVAL,
        "request_id": decision["request_id"],
        "gate": decision["gate"],
        "decision": Decision.ALLOW,
        "decided_by": closed(decision["decided_by"]),
        "decided_uid": decision["decided_uid"],
        "decided_user": None if user is None else closed(user),
        "requested_uid": decision["requested_uid"],
        "decided_role": decision.get("role"),
    }
    return all(record.get(name) == value for name, value in expected.items())


def _is_use_recorded(
    decision: Mapping[str, Json], predicate: Mapping[str, Json], database: Database
) -> bool:
    """Whether the log has the grant and, if the tool ran, its use: by this execution, or by the one
    that it serves (an MCP server runs under the trace of the call)."""
    approval_id = str(decision["request_id"])
    rows = database.rows(
        "SELECT record FROM audit WHERE instr(record, ?) ORDER BY seq",
        (f'"approval_id":"{approval_id}"'.encode(),),
    )
    about = [
        record
        for record in (json.loads(row[0]) for row in rows)
        if (record.get("kind"), record.get("approval_id")) == (Kind.STANDING, approval_id)
    ]
    user = decision["decided_user"]
    granted = {
        "event": "granted",
        "decided_by": closed(decision.get("granted_by")),
        "decided_uid": decision["decided_uid"],
        "decided_user": None if user is None else closed(user),
        "decided_role": decision.get("role"),
        "tool_id": closed(predicate["tool"]["id"]),
        "pin": closed(predicate["tool"]["pin"]),
    }
    used = {
        "event": "used",
        "decided_by": closed(decision["decided_by"]),
        "trace_id": closed(predicate["trace_id"]),
    }
    return all(
        any(all(record.get(name) == wanted[name] for name in wanted) for record in about)
        for wanted in ((granted, used) if predicate.get("ending") else (granted,))
    )
