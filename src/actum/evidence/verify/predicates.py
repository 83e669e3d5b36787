"""The rows of other tables that a signed receipt implies, in the columns of those tables."""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.model import Json
from actum.evidence.records.audit import Kind, closed


def expected_closing(predicate: Mapping[str, Json], receipt_sha256: str) -> dict[str, Json]:
    """The audit record that closes an execution, as its receipt would have it."""
    return {
        "kind": Kind.FINAL,
        "receipt_sha256": receipt_sha256,
        "execution_id": closed(predicate["execution_id"]),
        "trace_id": closed(predicate["trace_id"]),
        "attempt": predicate["attempt"],
        "tool_id": closed(predicate["tool"]["id"]),
        "adapter_id": closed((predicate["adapter"] or {}).get("id")),
        "outcome": predicate["outcome"],
        "cached": closed((predicate.get("cached") or {}).get("execution_id")),
        "reason_codes": [closed(code) for code in predicate["reason_codes"]],
        "input_digest": predicate["input_digest"],
        "output_digest": predicate["output_digest"],
        "policy_sha256": (predicate["policy"] or {}).get("sha256"),
        "contract_sha256": predicate["contract"]["sha256"],
        "duration_ms": predicate["time"]["duration_ms"],
    }


def expected_start(predicate: Mapping[str, Json]) -> dict[str, Json]:
    """Columns of `executions` that hold from the start on."""
    return {
        "execution_id": predicate["execution_id"],
        "identity_sha256": predicate["contract"]["identity_sha256"],
        "contract_sha256": predicate["contract"]["sha256"],
        "trace_id": predicate["trace_id"],
        "session": predicate["session"],
        "tool_id": closed(predicate["tool"]["id"]),
        "started_at": predicate["time"]["started"],
    }


def expected_end(predicate: Mapping[str, Json]) -> dict[str, Json]:
    """A FINAL row of `executions`; of its result, the digest."""
    return {
        **expected_start(predicate),
        "state": "FINAL",
        "outcome": predicate["outcome"],
        "result_json": predicate["result_sha256"],
        "receipt_id": predicate["receipt_id"],
        "ended_at": predicate["time"]["finished"],
        "owner": None,
        "opening": None,
        "pending_seq": None,
    }
