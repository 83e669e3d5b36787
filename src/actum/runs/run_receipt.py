"""The receipt of a run: an in-toto statement in a DSSE envelope, for every end of a run.

It binds the contract with all its revisions, the work file and the plan, the folder's states, and
each step in order with the digest of its own receipt. The ledger writes it in the transaction that
ends the run. A run that is continued gets a receipt for each of its ends, which names the one
before. Of texts it holds digests only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.records.encoding import encoded
from actum.evidence.records.facts import ACTUM_VERSION
from actum.evidence.records.receipt import PAYLOAD_TYPE, STATEMENT_TYPE, Receipt
from actum.runs.contract.material import HASH
from actum.runs.model import Run, Step
from actum.store import dsse
from actum.store.keys import PublicKey, Signer
from actum.value import value

PREDICATE_TYPE = "urn:actum:run-receipt:v1"
MANIFEST = "run-steps"


@value(kw_only=False)
class Revision:
    """One contract that a run had."""

    number: int
    cause: str
    metadata: str
    seal: str

    def statement(self) -> dict[str, Json]:
        return {
            "revision": self.number,
            "cause": self.cause,
            "hash": contract_hash(self.metadata),
            "metadata_sha256": _digest(self.metadata),
            "seal_sha256": _digest(self.seal),
        }


def run_receipt(
    run: Run, steps: Sequence[Step], revisions: Sequence[Revision], signer: Signer
) -> Receipt:
    receipt_id = new_id()
    listed: list[Json] = [step_statement(step) for step in steps]
    digest = sha256_bytes(encoded({"steps": listed}))
    predicate: dict[str, Json] = {
        "receipt_id": receipt_id,
        "previous_receipt": run.receipt_id,
        **end_statement(run),
        "contract": {
            "revision": run.revision,
            "hash": contract_hash(run.metadata),
            "revisions": [each.statement() for each in revisions],
        },
        "steps": listed,
        "environment": {"actum": ACTUM_VERSION},
    }
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": MANIFEST, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return Receipt(receipt_id, encoded(statement), signer)


def end_statement(run: Run) -> dict[str, Json]:
    """Everything that a receipt states about an ended run, its contract and its steps aside."""
    return {
        "run_id": run.run_id,
        "trace_id": run.trace_id,
        "status": run.status.value,
        "code": run.error_code,
        "validation_status": run.validation_status,
        "forked_from": run.forked_from,
        "requested_by": _digest(run.requested_by),
        "workspace_sha256": _digest(run.workspace),
        "source_sha256": run.source_sha256,
        "plan_sha256": run.plan_sha256,
        "base_state": run.base_state,
        "current_state": run.current_state,
        "epoch": run.epoch,
        "time": {"created": run.created_at, "started": run.started_at, "ended": run.ended_at},
    }


def step_statement(step: Step) -> dict[str, Json]:
    return {
        "index": step.step_index,
        "kind": step.kind.value,
        "item_id": step.item_id,
        "attempt": step.attempt,
        "revision": step.revision,
        "state": step.state.value,
        "status": None if step.status is None else step.status.value,
        "work_run_id": step.work_run_id,
        "receipt_id": step.receipt_id,
        "receipt_sha256": step.receipt_sha256,
        "base_state": step.base_state,
        "after_state": step.after_state,
        "codes_sha256": _digest(step.codes),
        "document_sha256": _digest(step.document),
    }


def read_run_receipt(
    envelope: Mapping[str, Json], trusted: Mapping[str, PublicKey]
) -> dict[str, Any]:
    """The predicate of a run's receipt, if a trusted key signed it and it is whole."""
    statement = json.loads(dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE))
    if (statement.get("_type"), statement.get("predicateType")) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise VerificationFailed(f"predicateType: it is not {PREDICATE_TYPE}.")
    predicate: dict[str, Any] = statement["predicate"]
    digest = sha256_bytes(encoded({"steps": predicate["steps"]}))
    if digest != statement["subject"][0]["digest"]["sha256"]:
        raise VerificationFailed("subject[0]: it is not the steps of the predicate.")
    return predicate


def is_run_receipt(envelope: Mapping[str, Json]) -> bool:
    """The name that it claims; its signature shows whether that is true."""
    try:
        statement = json.loads(base64.b64decode(str(envelope.get("payload")), validate=True))
    except (ValueError, RecursionError):
        return False
    return isinstance(statement, dict) and statement.get("predicateType") == PREDICATE_TYPE


def contract_hash(metadata: str) -> Json:
    """The hash that stored metadata states; any program may have edited the row."""
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return None
    stated = found.get(HASH) if isinstance(found, dict) else None
    return stated if isinstance(stated, str) else None


def _digest(text: str | None) -> str | None:
    return None if text is None else sha256_bytes(text.encode("utf-8", "surrogatepass"))
