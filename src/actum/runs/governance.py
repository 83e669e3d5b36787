"""The governance decision about a run: PASS or FAIL, with codes that a machine reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actum.contract.canonical import NotCanonical, canonical, sha256_json
from actum.contract.model import Json
from actum.runs.contract.check import UNSUPPORTED, Flaw
from actum.runs.contract.material import HASH, MATERIAL, SCHEMA
from actum.runs.model import Run
from actum.runs.run_status import RunStatus
from actum.value import value

DECISION_SCHEMA = 2
NOT_COMPLETE = "RUN_NOT_COMPLETE"
NOT_VALIDATED = "RUN_NOT_VALIDATED"
VALIDATION_FAILED = "RUN_VALIDATION_FAILED"
UNPINNED = "RUN_COMMIT_UNPINNED"


@value
class GateDecision:
    passed: bool
    document: Mapping[str, Json]

    @property
    def hash(self) -> str:
        return str(self.document["decisionHash"])


def gate_decision(
    run: Run, flaw: Flaw | None, receipts: Sequence[str], state_now: str | None
) -> GateDecision:
    """A pure function of a run: the same run gives the same decision and the same hash."""
    reasons: list[Json] = [
        {"code": code, "message": message, "details": dict(details)}
        for code, message, details in _reasons(run, flaw, state_now)
    ]
    contract = {key: held for key, held in run.contract.items() if _is_exact(held)}
    material = contract.get(MATERIAL)
    versions = dict(material) if isinstance(material, Mapping) else {}
    versions.pop("normalizedExecutionConfig", None)
    body: dict[str, Json] = {
        "decisionSchemaVersion": DECISION_SCHEMA,
        "decision": "FAIL" if reasons else "PASS",
        "reasonCodes": [each["code"] for each in reasons],
        "reasons": reasons,
        "runId": run.run_id,
        "contract": {
            "schemaVersion": contract.get(SCHEMA),
            "hash": contract.get(HASH),
            **{
                name: held
                for name, held in versions.items()
                if name != "executionContractSchemaVersion"
            },
        },
        "artifactRefs": [{"kind": "receipt", "path": each} for each in receipts],
    }
    return GateDecision(passed=not reasons, document={**body, "decisionHash": sha256_json(body)})


def _is_exact(held: object) -> bool:
    """Whether a stored value has a digest. An edited row may hold NaN or half a character; the
    decision about it is made without that value."""
    try:
        canonical(held)
    except (NotCanonical, RecursionError):
        return False
    return True


def _reasons(
    run: Run, flaw: Flaw | None, state_now: str | None
) -> list[tuple[str, str, Mapping[str, Json]]]:
    if flaw is not None:
        return [(flaw.code, flaw.message, flaw.details)]
    if run.blocked_code == UNSUPPORTED:
        return [(UNSUPPORTED, "No worker that is running supports this contract.", {})]
    if run.status is not RunStatus.COMPLETE:
        status: dict[str, Json] = {"status": run.status.value, "error": run.error_code}
        return [(NOT_COMPLETE, f"The run is {run.status.value}.", status)]
    if run.validation_status is None:
        return [(NOT_VALIDATED, "No heavy validation ran; `actum runs validate` runs it.", {})]
    if run.validation_status != "passed":
        return [(VALIDATION_FAILED, "The last heavy validation failed.", {})]
    if run.current_state is None or (state_now is not None and state_now != run.current_state):
        states: dict[str, Json] = {"run": run.current_state, "now": state_now}
        return [(UNPINNED, "The folder is not in the state that the run left.", states)]
    return []
