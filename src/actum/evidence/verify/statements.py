"""Signed statements about executions: whether a trusted key signed one, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping

from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.records.receipt import MANIFEST, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE
from actum.evidence.verify.findings import Finding
from actum.store import dsse
from actum.store.keys import PublicKey

_PREDICATE_FIELDS = frozenset(
    {
        *("receipt_id", "execution_id", "trace_id", "attempt", "session", "parent_receipt"),
        *("requested_by", "purpose_sha256", "contract", "input_digest", "tool", "adapter"),
        *("policy", "approvals", "proof", "executable", "runner", "outcome", "reason_codes"),
        *("ending", "streams", "output_digest", "artifacts", "artifacts_total", "enforcement"),
        *("denials", "trace", "time", "evidence", "result_sha256", "environment"),
    }
)
#: Only in receipts of executions that rest on decisions, whose changes were a transaction, that
#: were answered from the result cache, or that had a plan and were recorded since receipts say so.
_SOMETIMES = frozenset({"decisions", "workspace", "cached", "call"})


def signed_statement(
    envelope: Mapping[str, Json], trusted: Mapping[str, PublicKey], subject: str
) -> tuple[dict[str, Json] | None, tuple[Finding, ...]]:
    """The statement, if it is signed and whole, and what was found on the way."""
    try:
        payload = dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE)
    except VerificationFailed as error:
        return None, (Finding(subject, "signature", False, error.message),)
    try:
        statement = json.loads(payload)
        problem = _shape_problem(statement)
    except (ValueError, RecursionError):
        problem = "the payload is not JSON"
    if problem:
        return None, (
            Finding(subject, "signature", True),
            Finding(subject, "shape", False, problem),
        )
    named = name_of(statement)
    return statement, (Finding(named, "signature", True), Finding(named, "shape", True))


def name_of(statement: Mapping[str, Json]) -> str:
    return f"receipt {statement['predicate']['receipt_id']}"


def _shape_problem(statement: Json) -> str:
    # A trusted key signs other things too: only a statement of this very type may pass.
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
        return f"_type: it is not {STATEMENT_TYPE}"
    if statement.get("predicateType") != PREDICATE_TYPE:
        return f"predicateType: it is not {PREDICATE_TYPE}"
    predicate, subjects = statement.get("predicate"), statement.get("subject")
    if not isinstance(predicate, dict) or set(predicate) - _SOMETIMES != _PREDICATE_FIELDS:
        return "predicate: it has other fields than an execution receipt"
    evidence = predicate["evidence"]
    digest = evidence.get("sha256") if isinstance(evidence, dict) else None
    manifest = {"name": MANIFEST, "digest": {"sha256": digest}}
    if not isinstance(subjects, list) or not subjects or subjects[0] != manifest:
        return f"subject[0]: it is not the {MANIFEST} of the predicate"
    return ""
