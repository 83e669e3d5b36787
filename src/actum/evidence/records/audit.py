"""Audit records: closed fields, exact bytes, one leaf of the log's tree each.

There is no field into which text of a caller, a tool or an operating system could flow: only
identifiers, words of closed sets, numbers and digests. Paths, arguments, output, environment and
error texts are deliberately absent. `evidence.log` stores and proves the records.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, ActionStatus, Outcome
from actum.evidence.records.facts import ACTUM_VERSION, ExecutionFacts, Intent
from actum.evidence.records.trace import rfc3339

#: The form of a record, in its field `v`. From version 3 on, the record of a transaction binds the
#: rows that no receipt binds (`evidence.records.bound_rows`).
VERSION = 3

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")


class Kind(StrEnum):
    DECISION = "DECISION"
    PENDING = "PENDING"
    FINAL = "FINAL"
    MALFORMED = "MALFORMED"
    KEY_ROTATE = "KEY_ROTATE"  #: another key signs from here on
    WORK = "WORK"  #: a work item begins, or is over
    RUN = "RUN"  #: a durable run was submitted, claimed, continued or ended, or a step of it
    APPROVAL = "APPROVAL"  #: an approval was requested, decided or used
    STANDING = "STANDING"  #: a standing approval was granted, used or revoked
    CHANGES = "CHANGES"  #: a decision about changes after their execution was closed
    SERVER = "SERVER"  #: what an MCP server offered when it was first used under an approval
    ADOPTED = "ADOPTED"  #: records from before there were checkpoints are signed from here on
    REMOVED = "REMOVED"  #: contents were removed by their age (`actum gc --keep`)
    ROWS = "ROWS"  #: rows from before version 3 are bound from here on, as they were found


class Decision(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"


def pending(about: dict[str, Json], opening_sha256: str) -> dict[str, Json]:
    """An attempt is about to begin; `opening_sha256` is the digest of its opening record.

    `about` here and below is the result of `record` for the execution.
    """
    return {
        **about,
        "kind": "PENDING",
        "status": "PENDING",
        "reason_codes": ["EXECUTION_ATTEMPT"],
        "opening_sha256": opening_sha256,
    }


def allowed(about: dict[str, Json]) -> dict[str, Json]:
    return {**about, "kind": "DECISION", "status": "PENDING", "decision": "ALLOW"}


def denied(about: dict[str, Json], facts: ExecutionFacts) -> dict[str, Json]:
    return {
        **about,
        "kind": Kind.DECISION,
        "status": PROJECTIONS[facts.outcome].action,
        "reason_codes": [closed(code) or "" for code in facts.reason_codes],
        "decision": Decision.DENY,
    }


def final(about: dict[str, Json], facts: ExecutionFacts, receipt_sha256: str) -> dict[str, Json]:
    """The one record that closes an execution."""
    return {
        **about,
        "kind": "FINAL",
        "status": PROJECTIONS[facts.outcome].action,
        "reason_codes": [closed(code) or "" for code in facts.reason_codes],
        "ts": rfc3339(facts.ended_at),
        "outcome": facts.outcome,
        "cached": closed(facts.cached.execution_id) if facts.cached else None,
        "output_digest": facts.output_digest,
        "receipt_sha256": receipt_sha256,
        "duration_ms": facts.duration_ms,
    }


def malformed(body: bytes, at: datetime) -> dict[str, Json]:
    """Input that is not a contract: only the digest of its bytes is recorded."""
    return {
        **_NOTHING_KNOWN,
        "kind": Kind.MALFORMED,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "status": ActionStatus.BLOCKED,
        "outcome": Outcome.REJECTED,
        "reason_codes": ["CONTRACT_INVALID"],
        "input_digest": sha256_bytes(body),
    }


#: Every field of a record about an execution, with nothing known yet.
_NOTHING_KNOWN: dict[str, Json] = {
    "v": VERSION,
    "kind": None,
    "ts": None,
    "execution_id": None,
    "trace_id": None,
    "attempt": 0,
    "tool_id": None,
    "adapter_id": None,
    "versions": None,
    "decision": None,
    "status": None,
    "outcome": None,
    "cached": None,
    "reason_codes": [],
    "input_digest": None,
    "output_digest": None,
    "policy_sha256": None,
    "contract_sha256": None,
    "receipt_sha256": None,
    "opening_sha256": None,
    "duration_ms": 0,
}


def changes(
    execution_id: str,
    state: str,
    diff_sha256: str,
    at: datetime,
    *,
    transaction: str,
    record_sha256: str,
) -> dict[str, Json]:
    """Changes of an execution were committed, discarded or undone after it was closed; or their
    stored copy was removed to make room for newer ones."""
    return {
        "v": 1,
        "kind": Kind.CHANGES,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "execution_id": closed(execution_id),
        "state": closed(state),
        "diff_sha256": closed(diff_sha256),
        "transaction": closed(transaction),
        "record_sha256": closed(record_sha256),
    }


def adopted(records: int, root: bytes, at: datetime) -> dict[str, Json]:
    """Records that `records` older ones, with this root, were adopted unsigned."""
    return {
        "v": VERSION,
        "kind": Kind.ADOPTED,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "records": records,
        "root": root.hex(),
    }


def removed(field: str, names: list[str], before: datetime, at: datetime) -> dict[str, Json]:
    """Names contents or outputs that are removed because they are from `before` a time. `field` is
    one of `store.removed`."""
    return {
        "v": VERSION,
        "kind": Kind.REMOVED,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "before": rfc3339(before),
        field: [closed(name) for name in names],
    }


def rows_found(rows: list[Json], at: datetime) -> dict[str, Json]:
    """Binds rows of an older version as they were found; see `bound_rows.bound`."""
    return {
        "v": VERSION,
        "kind": Kind.ROWS,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "rows": rows,
    }


def closed(name: str | None) -> str | None:
    """An identifier unchanged; any other text as its digest, so that no text gets in."""
    if name is None or _IDENTIFIER.fullmatch(name):
        return name
    return f"sha256:{sha256_bytes(name.encode('utf-8', 'surrogatepass'))}"


def _policy(intent: Intent) -> str | None:
    if intent.proof is not None:
        return intent.proof.policy_sha256  # computed when the proof was made
    return intent.policy.sha256 if intent.policy else None


def record(intent: Intent) -> dict[str, Json]:
    """The fields common to all records about one execution."""
    tool, adapter = intent.tool, intent.adapter
    return {
        **_NOTHING_KNOWN,
        "ts": rfc3339(intent.started_at),
        "execution_id": closed(intent.contract.execution_id),
        "trace_id": closed(intent.trace_id),
        "attempt": intent.attempt,
        "tool_id": closed(intent.contract.tool_id),
        "adapter_id": closed(adapter.adapter_id) if adapter else None,
        "versions": {
            "actum": ACTUM_VERSION,
            "tool": closed(tool.version) if tool else None,
            "adapter": closed(adapter.version) if adapter else None,
        },
        "input_digest": intent.input_digest,
        "policy_sha256": _policy(intent),
        "contract_sha256": intent.contract_sha256,
    }
