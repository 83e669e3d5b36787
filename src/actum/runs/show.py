"""A run as its status shows it: one document for the library and the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence

from actum.contract.model import Json
from actum.runs.contract.check import Flaw
from actum.runs.contract.material import (
    EFFECTIVE,
    FALLBACK_FIELDS,
    FALLBACK_USED,
    HASH,
    MATERIAL,
    SCHEMA,
)
from actum.runs.model import Run, Step


def run_document(run: Run, steps: Sequence[Step], flaw: Flaw | None) -> dict[str, Json]:
    contract = run.contract
    material = contract.get(MATERIAL)
    versions = material if isinstance(material, dict) else {}
    return {
        "runId": run.run_id,
        "status": run.status.value,
        "source": {"sha256": run.source_sha256},
        "revision": run.revision,
        "epoch": run.epoch,
        "worker": run.worker,
        "workspace": run.workspace,
        "forkedFrom": run.forked_from,
        "priority": run.priority,
        "requestedBy": run.requested_by,
        "executionContract": {
            "schemaVersion": contract.get(SCHEMA),
            "hash": contract.get(HASH),
            "determinismPolicyVersion": versions.get("determinismPolicyVersion"),
            "plannerPolicyVersion": versions.get("plannerPolicyVersion"),
            "correctionRecipeVersion": versions.get("correctionRecipeVersion"),
            "validationPolicyVersion": versions.get("validationPolicyVersion"),
            "randomnessSeed": versions.get("randomnessSeed"),
            "effectiveConfig": contract.get(EFFECTIVE),
            "fallbackUsed": contract.get(FALLBACK_USED),
            "fallbackFields": contract.get(FALLBACK_FIELDS),
            "verified": "OK" if flaw is None else flaw.code,
        },
        "error": _error(run),
        "blocked": run.blocked_code,
        "cancelRequestedBy": run.cancel_by,
        "validationStatus": run.validation_status,
        "state": {"base": run.base_state, "current": run.current_state},
        "steps": [_step(step) for step in steps],
        "receiptId": run.receipt_id,
        "createdAt": run.created_at,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
    }


def _error(run: Run) -> Json:
    if run.error_code is None:
        return None
    details = json.loads(run.error_details) if run.error_details else {}
    return {"code": run.error_code, "message": None, "details": {}, **details}


def _step(step: Step) -> dict[str, Json]:
    kept = json.loads(step.document) if step.document else {}
    return {
        "index": step.step_index,
        "kind": step.kind.value,
        "itemId": step.item_id,
        "attempt": step.attempt,
        "revision": step.revision,
        "state": step.state.value,
        "status": None if step.status is None else step.status.value,
        "codes": list(step.reasons),
        "reason": kept.get("reason"),
        "findings": kept.get("findings", []),
        "executions": kept.get("executions", []),
        "receiptId": step.receipt_id,
        "baseState": step.base_state,
        "afterState": step.after_state,
    }


def key_value_lines(document: dict[str, Json]) -> list[str]:
    """The contract as KEY=VALUE lines, for scripts without a JSON reader."""
    contract = document["executionContract"]
    assert isinstance(contract, dict)  # noqa: S101 -- made above
    names = {
        "SCHEMA_VERSION": "schemaVersion",
        "HASH": "hash",
        "DETERMINISM_POLICY_VERSION": "determinismPolicyVersion",
        "PLANNER_POLICY_VERSION": "plannerPolicyVersion",
        "CORRECTION_RECIPE_VERSION": "correctionRecipeVersion",
        "VALIDATION_POLICY_VERSION": "validationPolicyVersion",
        "RANDOMNESS_SEED": "randomnessSeed",
        "FALLBACK_USED": "fallbackUsed",
    }
    lines = [f"EXECUTION_CONTRACT_{key}={_word(contract[name])}" for key, name in names.items()]
    fields = contract["fallbackFields"]
    listed = ",".join(map(str, fields)) if isinstance(fields, list) else ""
    lines.append(f"EXECUTION_CONTRACT_FALLBACK_FIELDS={listed}")
    config = contract["effectiveConfig"]
    if isinstance(config, dict):
        lines += [f"EXECUTION_CONFIG_{name}={_word(held)}" for name, held in config.items()]
    return lines


def _word(found: Json) -> str:
    return str(found).lower() if isinstance(found, bool) else "" if found is None else str(found)
