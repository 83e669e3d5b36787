"""Receipts: an in-toto Statement about one execution, signed in a DSSE envelope.

The statement binds the request, the policy, the enforcement and the ending, all as
identifiers, numbers and digests. Subjects carry SHA-256 only, because common verifiers reject a
statement with any other digest in it; BLAKE3 addresses are in the predicate. Output, arguments,
stdin and environment values are never part of it. Receipts name paths and people: they are
confidential, though not secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache

from actum import native
from actum.capture.endings import interpret
from actum.capture.model import Capture, Collected, Denial, Enforced, Stream
from actum.capture.streams import SILENCE
from actum.contract.call import Executable, Plan
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.records.audit import closed
from actum.evidence.records.encoding import count, encoded
from actum.evidence.records.evidence_record import file_document
from actum.evidence.records.facts import ACTUM_VERSION, ExecutionFacts, Intent
from actum.evidence.records.trace import rfc3339
from actum.policy.gates import Granted
from actum.store import dsse
from actum.store.keys import Signer
from actum.value import plain

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:actum:execution-receipt:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
MANIFEST = "evidence-manifest"
MAX_FILES = 64  #: named one by one; the evidence record, the first subject, lists all


class Receipt:
    """A statement and its signature. `encoded` is what is stored and exported, to the byte."""

    def __init__(self, receipt_id: str, statement: bytes, signer: Signer) -> None:
        self.receipt_id = receipt_id
        self.statement = statement
        self.signer = signer
        self.encoded = dsse.sign_encoded(statement, PAYLOAD_TYPE, signer)
        self.sha256 = sha256_bytes(self.encoded)

    def by(self, signer: Signer) -> Receipt:
        """The same, signed by `signer`."""
        return self if signer is self.signer else Receipt(self.receipt_id, self.statement, signer)

    @property
    def envelope(self) -> Mapping[str, Json]:
        envelope: dict[str, Json] = json.loads(self.encoded)
        return envelope


def joined(*objects: bytes) -> bytes:
    """One JSON object of several that share no key; none of them is empty."""
    return b"{%s}" % b",".join([each[1:-1] for each in objects])


def encode_statement(
    facts: ExecutionFacts,
    record_sha256: str,
    result_sha256: str | None,
    *,
    events: bytes,
    predicate: bytes,
) -> bytes:
    """The statement about `facts`; the digests are of the evidence record and the result.

    `events` are those of `facts`, encoded. `predicate` is that of the `OpeningRecord` of the same
    intent. A signature covers bytes, so the order of the keys is free.
    """
    files = facts.capture.collected[:MAX_FILES] if facts.capture else ()
    subjects = [{"name": MANIFEST, "digest": {"sha256": record_sha256}}]
    subjects += map(_subject, files)
    own = encoded(
        {
            **_ended(facts, events),
            "evidence": {"evidence_id": facts.evidence_id, "sha256": record_sha256},
            "result_sha256": result_sha256,
        }
    )
    return statement_of(encoded(subjects), joined(predicate, own))


def statement_of(subjects: bytes, predicate: bytes) -> bytes:
    return b'{"_type":"%s","subject":%s,"predicateType":"%s","predicate":%s}' % (
        STATEMENT_TYPE.encode(),
        subjects,
        PREDICATE_TYPE.encode(),
        predicate,
    )


def asked(intent: Intent) -> dict[str, Json]:
    """The first half of the predicate: facts from before the start."""
    contract, metadata = intent.contract, intent.contract.metadata
    tool, adapter, policy, proof = intent.tool, intent.adapter, intent.policy, intent.proof
    return {
        "receipt_id": intent.receipt_id,
        "execution_id": contract.execution_id,
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
        else {"id": closed(contract.tool_id), "version": None, "pin": None},
        "adapter": {
            "id": adapter.adapter_id,
            "version": adapter.version,
            "status": adapter.status,
            "sha256": adapter.sha256,
        }
        if adapter
        else None,
        "environment": {
            "actum": ACTUM_VERSION,
            "kernel": _uname().release,
            "machine": _uname().machine,
            **_native(intent.plan),
        },
        "policy": {"sha256": policy.sha256, "document": policy.document()} if policy else None,
        "approvals": list(policy.approvals) if policy else [],
        **({"decisions": list(map(_decision, intent.decisions))} if intent.decisions else {}),
        "proof": {
            "sha256": proof.sha256,
            "checks": [
                {"code": check.code, "result": check.result.value, "names": list(check.names)}
                for check in proof.checks
            ],
        }
        if proof
        else None,
        "executable": _executable(proof.executable) if proof else None,
        "runner": policy.runner.value if policy else None,
        **({"call": _call(intent.plan)} if intent.plan else {}),
    }


def _executable(executable: Executable) -> dict[str, Json]:
    return {
        "path": executable.path,
        "sha256": executable.sha256,
        **({"image": executable.image} if executable.image else {}),
    }


def _call(plan: Plan) -> dict[str, Json]:
    """With tool, executable and policy, what decides whether another run is the same."""
    return {
        "arguments_sha256": _joined_sha256(plan.argv),
        "environment_sha256": _joined_sha256(sorted(map("=".join, plan.environment.items()))),
        "stdin_sha256": sha256_bytes(plan.stdin),
    }


def _joined_sha256(texts: Iterable[str]) -> str:
    """Of the texts as a process gets them, each with its final NUL."""
    return sha256_bytes("".join(f"{text}\0" for text in texts).encode("utf-8", "surrogatepass"))


def _decision(granted: Granted) -> dict[str, Json]:
    """The deciders, as given and as the operating system identifies them."""
    asked, decided = granted.requested_as, granted.decided_as
    return {
        "gate": granted.need.gate,
        "request_id": granted.request_id,
        "decided_by": granted.decided_by,
        **({"granted_by": granted.granted_by} if granted.is_standing else {}),
        "decided_uid": None if decided is None else decided.uid,
        "decided_user": None if decided is None else decided.name,
        "role": granted.role,
        "requested_uid": None if asked is None else asked.uid,
        "same_user": granted.same_user,
    }


def _native(plan: Plan | None) -> dict[str, Json]:
    """The build of the native parts that executes a plan."""
    return {
        "init_sha256": native.sha256(native.INIT) if plan else None,
        "determinism_sha256": native.sha256(native.DETERMINISM) if plan and plan.steady else None,
    }


def _ended(facts: ExecutionFacts, events: bytes) -> dict[str, Json]:
    capture = facts.capture
    return {
        "outcome": facts.outcome,
        "reason_codes": list(facts.reason_codes),
        **({"cached": plain(facts.cached)} if facts.cached else {}),
        "ending": _ending(facts, capture) if capture else None,
        "streams": {"stdout": _stream(capture.stdout), "stderr": _stream(capture.stderr)}
        if capture
        else None,
        "output_digest": facts.output_digest,
        **({"workspace": plain(capture.workspace)} if capture and capture.workspace else {}),
        "artifacts": list(map(file_document, capture.collected[:MAX_FILES])) if capture else [],
        "artifacts_total": len(capture.collected) if capture else 0,
        "enforcement": list(map(_enforced, capture.enforcement)) if capture else [],
        "denials": _denials(capture.denials if capture else ()),
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


def _denials(denials: tuple[Denial, ...]) -> dict[str, Json]:
    """Targets are left out: a tool could encode its input in the names it requests. Names of
    system calls are the kernel's."""
    return {
        "count": count(sum(each.count for each in denials)),
        "kinds": sorted({each.kind for each in denials}),
        "system_calls": {
            each.target: count(each.count) for each in denials if each.kind == "syscall"
        },
    }


def _enforced(row: Enforced) -> dict[str, Json]:
    return {
        "limit": row.limit,
        "requested": row.requested,
        "mechanism": row.mechanism,
        "enforced": row.enforced,
        "peak": row.peak if row.peak is None else count(row.peak),
        "tripped": row.tripped,
    }


_SILENT = {"bytes": 0, "kept": 0, "sha256": SILENCE.sha256}


def _stream(stream: Stream) -> dict[str, Json]:
    if stream is SILENCE:
        return _SILENT
    return {
        "bytes": count(stream.total_bytes),
        "kept": len(stream.kept),
        "sha256": stream.sha256,
    }


def _subject(file: Collected) -> dict[str, Json]:
    return {"name": f"{file.kind}/{file.path}", "digest": {"sha256": file.sha256}}


@cache
def _uname() -> os.uname_result:
    return os.uname()
