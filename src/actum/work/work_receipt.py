"""The receipt of a work item: an in-toto statement in a DSSE envelope, for every outcome.

It binds the request, the state before and after, every change by path and digest, every call by its
own receipt, and the verdict of the tests. Of texts (description, test command and its output) it
holds digests only. Like every receipt it names paths, and is confidential.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.evidence.records.encoding import encoded
from actum.evidence.records.facts import ACTUM_VERSION
from actum.evidence.records.receipt import STATEMENT_TYPE, Receipt
from actum.evidence.records.trace import rfc3339
from actum.evidence.records.work_names import RECEIPT
from actum.evidence.verify.work_findings import PREDICATE_TYPE
from actum.store.keys import Signer
from actum.value import field, value
from actum.work.admission import RunCapsule, counts
from actum.work.damage import Damage
from actum.work.model import RunResult, WorkItem

FILE_NAME = RECEIPT
MANIFEST = "work-capsule"


@value
class Before:
    """The facts about a run when it begins."""

    run_id: str
    item: WorkItem
    agent_sha256: str
    workspace: Path
    started_at: datetime
    replay: bool = False
    receipt_id: str = field(default_factory=new_id)  #: of the receipt to come; calls name it


@value
class After:
    """The facts about a run when it has ended."""

    before_hash: str
    base_hash: str  #: the state it ran on; differs from `before_hash` if others committed meanwhile
    capsule: RunCapsule
    run_hash: str
    engine: str
    cap_bytes: int
    looked: bool = True  #: all names of the workspace were read; else its index was trusted
    test_exit: int | None = None
    tested_on: str = ""  #: the state its tests ran on; `before_hash`, if it was committed
    previous_receipt: str | None = None
    damage: Damage | None = None  #: differences from `before_hash` that recovery found
    ended_at: datetime


def folder_of(home: Path, receipt_id: str) -> Path:
    return home / "receipts" / "work" / receipt_id


def capsule_document(capsule: RunCapsule) -> dict[str, Json]:
    """Everything that the run did; its digest is the receipt's subject."""
    return {
        "artifacts": [
            {"type": item.type, "path": item.path, "blake3": item.content_hash}
            for item in capsule.artifacts
        ],
        "deltas": {
            name: [resource.document() for resource in part]
            for name, part in (
                ("deltaO", capsule.delta_o),
                ("deltaPi", capsule.delta_pi),
                ("deltaLambda", capsule.delta_lambda),
                ("deltaQ", capsule.delta_q),
            )
        },
        "tool_trace": [
            {
                "tool_id": op.tool_id,
                "input_digest": op.input_digest,
                "outcome": op.outcome,
                "execution_id": op.execution_id,
                "receipt_id": op.receipt_id,
                "duration_ms": op.duration_ms,
            }
            for op in capsule.tool_trace
        ],
    }


def make_receipt(before: Before, after: After, result: RunResult, signer: Signer) -> Receipt:
    capsule = capsule_document(after.capsule)
    digest = sha256_bytes(encoded(capsule))
    item = before.item
    predicate: dict[str, Json] = {
        "receipt_id": result.receipt_id,
        "run_id": before.run_id,
        "work_item": {"id": item.id, "agent_id": item.agent_id, "sha256": item.sha256},
        "agent_sha256": before.agent_sha256,
        "workspace": str(before.workspace),
        "status": result.status.value,
        "reason_sha256": _digest(result.error or result.denial_reason),
        "before_hash": after.before_hash,
        "base_hash": after.base_hash,
        "after_hash": result.output_hash,
        "run_hash": after.run_hash,
        "capsule": {"sha256": digest, **capsule},
        "delta_counts": dict(counts(after.capsule)),
        "metrics": dict(result.document()["metrics"]),
        "tests": None
        if after.test_exit is None
        else {
            "command_sha256": _digest(item.test_command),
            "exit_code": after.test_exit,
            "base_hash": after.tested_on,
            "output_sha256": _digest(result.test_output),
        },
        "isolation": {
            "engine": after.engine,
            "cap_bytes": after.cap_bytes,
            "state_by": "scan" if after.looked else "index",
        },
        "budget": item.document()["budget"],
        "damage": after.damage.document() if after.damage else None,
        "previous_receipt": after.previous_receipt,
        "time": {"started": rfc3339(before.started_at), "finished": rfc3339(after.ended_at)},
        "environment": {"actum": ACTUM_VERSION},
    }
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": MANIFEST, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return Receipt(result.receipt_id, encoded(statement), signer)


def _digest(text: str | None) -> str | None:
    return None if text is None else sha256_bytes(text.encode("utf-8", "surrogatepass"))
