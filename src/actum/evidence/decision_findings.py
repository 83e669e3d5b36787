"""What a receipt says of people's decisions, held against the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from actum.contract.model import Json
from actum.evidence.audit import Decision, Kind, closed
from actum.evidence.findings import Finding
from actum.store.database import Database


def decision_findings(
    subject: str, predicate: Mapping[str, Json], database: Database | None
) -> Iterator[Finding]:
    """One for each decision that an execution rests on, with who took it. Without the store of its
    home, what the receipt itself says."""
    for decision in predicate.get("decisions", ()):
        who = _who(decision)
        recorded = database is None or _is_recorded(decision, database)
        detail = who if recorded else f"the audit log has no such decision: {who}"
        yield Finding(subject, "approval", recorded, detail)


def _who(decision: Mapping[str, Json]) -> str:
    user = decision["decided_user"]
    known = "user unknown" if user is None else f"user {user}, uid {decision['decided_uid']}"
    same = "; the same user asked and approved" if decision["same_user"] else ""
    return f"{decision['gate']} by {decision['decided_by']} ({known}{same})"


def _is_recorded(decision: Mapping[str, Json], database: Database) -> bool:
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
    }
    return all(record.get(name) == value for name, value in expected.items())
