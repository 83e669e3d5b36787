"""Receipts: an in-toto Statement about one execution, signed in a DSSE envelope.

The statement binds what was asked, what was allowed, what enforced it and how it ended, all as
identifiers, numbers and digests. Subjects carry SHA-256 only, because common verifiers reject a
statement with any other digest in it; BLAKE3 addresses stand in the predicate. Output, arguments,
stdin and environment values are never part of it. Receipts name paths and people: they are
confidential, though not secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, lru_cache

from actum.capture.interpret import interpret
from actum.capture.model import Capture, Collected, Enforced, Stream
from actum.contract.call import EffectivePolicy, ValidationProof
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.audit import closed
from actum.evidence.encoding import encoded
from actum.evidence.facts import ACTUM_VERSION, ExecutionFacts, Intent, policy_sha256
from actum.evidence.record import count
from actum.evidence.trace import rfc3339
from actum.store import dsse
from actum.store.keys import Signer
from actum.value import value

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:actum:execution-receipt:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
MANIFEST = "evidence-manifest"
MAX_FILES = 64  #: named one by one; the evidence record, the first subject, lists all


@value
class Receipt:
    receipt_id: str
    envelope: Mapping[str, Json]
    encoded: bytes  #: what is stored and exported, to the byte
    sha256: str  #: of `encoded`


def sign_receipt(payload: bytes, receipt_id: str, signer: Signer) -> Receipt:
    """Sign a statement as it was encoded."""
    envelope = dsse.sign(payload, PAYLOAD_TYPE, signer)
    stored = encoded(envelope)
    return Receipt(
        receipt_id=receipt_id, envelope=envelope, encoded=stored, sha256=sha256_bytes(stored)
    )


def asked(intent: Intent) -> bytes:
    """The half of the predicate that is known before the start: what was asked and allowed.

    A signature covers bytes, so the order of the keys is free. What many receipts share (policy and
    proof, the larger part) is encoded once for all of them and put in as it is.
    """
    return joined(encoded(_asked(intent)), _allowed(intent.policy, intent.proof))


def joined(first: bytes, second: bytes) -> bytes:
    """One JSON object of two that share no key."""
    return b"%s,%s" % (first[:-1], second[1:])


def encode_statement(
    facts: ExecutionFacts,
    record_sha256: str,
    result_sha256: str | None,
    *,
    events: bytes,
    predicate: bytes | None = None,
) -> bytes:
    """The statement about `facts`; the digests are of the evidence record and the result.

    `events` are those of `facts`, encoded. `predicate` is what `asked` said of the same intent.
    """
    files = facts.capture.collected[:MAX_FILES] if facts.capture else ()
    subjects = [{"name": MANIFEST, "digest": {"sha256": record_sha256}}]
    subjects += [
        {"name": f"{file.kind}/{file.path}", "digest": {"sha256": file.sha256}} for file in files
    ]
    own = encoded(
        {
            **_ended(facts, events),
            "evidence": {"evidence_id": facts.evidence_id, "sha256": record_sha256},
            "result_sha256": result_sha256,
        }
    )
    return statement_of(encoded(subjects), joined(predicate or asked(facts), own))


def statement_of(subjects: bytes, predicate: bytes) -> bytes:
    return b'{"_type":"%s","subject":%s,"predicateType":"%s","predicate":%s}' % (
        STATEMENT_TYPE.encode(),
        subjects,
        PREDICATE_TYPE.encode(),
        predicate,
    )


def _asked(intent: Intent) -> dict[str, Json]:
    metadata = intent.contract.metadata
    tool, adapter = intent.tool, intent.adapter
    return {
        "receipt_id": intent.receipt_id,
        "execution_id": intent.execution_id,
        "trace_id": intent.trace_id,
        "attempt": intent.attempt,
        "session": intent.session,
        "parent_receipt": intent.parent_receipt,
        "requested_by": metadata.requested_by,
        "purpose_sha256": sha256_bytes(metadata.purpose.encode("utf-8", "surrogatepass")),
        "contract": {
            "sha256": intent.contract_sha256,
            "identity_sha256": intent.identity_sha256,
        },
        "input_digest": intent.input_digest,
        "tool": {"id": tool.tool_id, "version": tool.version, "pin": tool.pin}
        if tool
        else {"id": closed(intent.contract.tool_id), "version": None, "pin": None},
        "adapter": {
            "id": adapter.adapter_id,
            "version": adapter.version,
            "sha256": adapter.sha256,
        }
        if adapter
        else None,
        "environment": {
            "actum": ACTUM_VERSION,
            "kernel": _uname().release,
            "machine": _uname().machine,
        },
    }


@lru_cache(maxsize=256)
def _allowed(policy: EffectivePolicy | None, proof: ValidationProof | None) -> bytes:
    document = {
        "policy": {"sha256": policy_sha256(policy), "document": policy.document()}
        if policy
        else None,
        "approvals": list(policy.approvals) if policy else [],
        "proof": {
            "sha256": proof.sha256,
            "checks": [
                {"code": check.code, "result": check.result.value, "names": list(check.names)}
                for check in proof.checks
            ],
        }
        if proof
        else None,
        "executable": {"path": proof.executable.path, "sha256": proof.executable.sha256}
        if proof
        else None,
        "runner": policy.runner.value if policy else None,
    }
    return encoded(document)


def _ended(facts: ExecutionFacts, events: bytes) -> dict[str, Json]:
    capture = facts.capture
    return {
        "outcome": facts.outcome.value,
        "reason_codes": list(facts.reason_codes),
        "ending": _ending(facts, capture) if capture else None,
        "streams": {"stdout": _stream(capture.stdout), "stderr": _stream(capture.stderr)}
        if capture
        else None,
        "output_digest": facts.output_digest,
        "artifacts": [_file(file) for file in capture.collected[:MAX_FILES]] if capture else [],
        "artifacts_total": len(capture.collected) if capture else 0,
        "enforcement": [_enforced(row) for row in capture.enforcement] if capture else [],
        # Targets are left out: a tool can spell its input in the names it asks for.
        "denials": {
            "count": len(capture.denials) if capture else 0,
            "kinds": sorted({denial.kind for denial in capture.denials}) if capture else [],
        },
        "trace": {
            "count": len(facts.events),
            "sha256": sha256_bytes(events),
        },
        "time": {
            "started": rfc3339(facts.started_at),
            "finished": rfc3339(facts.ended_at),
            "duration_ms": facts.duration_ms,
        },
    }


def _ending(facts: ExecutionFacts, capture: Capture) -> dict[str, Json]:
    return {
        "kind": type(capture.ending).__name__,
        "exit_code": facts.exit_code,
        "signal": interpret(capture.ending).signal,
    }


def _stream(stream: Stream) -> dict[str, Json]:
    return {
        "bytes": count(stream.total_bytes),
        "kept": len(stream.kept),
        "sha256": stream.sha256,
    }


def _file(file: Collected) -> dict[str, Json]:
    return {
        "name": file.name,
        "path": file.path,
        "kind": file.kind,
        "size": file.size,
        "sha256": file.sha256,
        "blake3": file.blake3,
    }


def _enforced(row: Enforced) -> dict[str, Json]:
    return {
        "limit": row.limit,
        "requested": row.requested,
        "mechanism": row.mechanism,
        "enforced": row.enforced,
        "peak": count(row.peak) if row.peak is not None else None,
        "tripped": row.tripped,
    }


@cache
def _uname() -> os.uname_result:
    return os.uname()
