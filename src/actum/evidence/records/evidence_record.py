"""The evidence record: what a person needs to judge one execution later.

Unlike audit, trace and receipt it may hold content: the exact command, the beginning of the
output after redaction, and references to the collected files. It never holds the values of
environment variables or the bytes given on stdin. It lives in the access-controlled store, and
the receipt signs its digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from actum.capture.model import Capture, Collected, NotCollected, Stream
from actum.capture.streams import SILENCE
from actum.contract.call import Plan
from actum.contract.model import Json
from actum.errors import Violation
from actum.evidence.records.checklists import Line, checklists
from actum.evidence.records.encoding import count
from actum.evidence.records.error_event import errors_in
from actum.evidence.records.facts import ExecutionFacts, Intent
from actum.evidence.records.trace import rfc3339
from actum.store.database import Database
from actum.value import plain

SUMMARY_BYTES = 4_096

Redact = Callable[[bytes], bytes]


def begun(intent: Intent) -> dict[str, Json]:
    """The first half of the record: facts from before the start."""
    contract, adapter = intent.contract, intent.adapter
    return {
        "v": 1,
        "evidence_id": intent.evidence_id,
        "evidence_ref": intent.evidence_ref,
        "receipt_id": intent.receipt_id,
        "execution_id": contract.execution_id,
        "trace_id": intent.trace_id,
        "attempt": intent.attempt,
        "filled": sorted(contract.filled),
        "tool_id": contract.tool_id,
        "adapter_id": adapter.adapter_id if adapter else None,
        "adapter_status": adapter.status if adapter else None,
        "requested_by": contract.metadata.requested_by,
        "purpose": contract.metadata.purpose,
        "command": _command(intent.plan) if intent.plan else None,
        "narrowed": [plain(each) for each in intent.policy.narrowed] if intent.policy else [],
        "started_at": rfc3339(intent.started_at),
    }


def ended(
    facts: ExecutionFacts,
    stored: Collection[str],
    redact: Redact,
    leftovers: tuple[str, ...] | None,
    pre: tuple[Line, ...] | None = None,
) -> dict[str, Json]:
    """The second half of the record: the ending and its results.

    `stored` are the addresses of its files; `leftovers` and `pre` are those of `checklists`.
    """
    capture = facts.capture
    return {
        "outcome": facts.outcome,
        "reason_codes": list(facts.reason_codes),
        "violations": list(map(_violation, facts.violations)),
        "errors": errors_in(facts.events),
        "cached": plain(facts.cached) if facts.cached else None,
        "exit_code": facts.exit_code,
        **({"allowlist": plain(facts.allowlist)} if facts.allowlist else {}),
        "output": _output(capture, redact) if capture else None,
        "full_output": _full_output(facts, capture) if capture else None,
        "files": list(map(file_document, capture.collected)) if capture else [],
        "not_collected": list(map(_lost, capture.not_collected)) if capture else [],
        **({"workspace": plain(capture.workspace)} if capture and capture.workspace else {}),
        "diff_summary": plain(capture.diff) if capture and capture.diff else None,
        "tests": plain(facts.tests) if facts.tests else None,
        "checklists": checklists(facts, stored, leftovers, pre),
        "ended_at": rfc3339(facts.ended_at),
        "duration_ms": facts.duration_ms,
    }


class EvidenceRecords:
    """Finds evidence by the reference that results and contracts carry."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, evidence_ref: str) -> tuple[dict[str, Json], ...]:
        """Every record under a reference, oldest first; several executions may share one.

        The id of the evidence, of its execution or of its receipt is a reference, too, and means
        that record alone.
        """
        evidence_id = evidence_ref.removeprefix("evidence:")
        rows = self._database.rows(
            "SELECT document, 1 FROM evidence_records WHERE evidence_id = ?"
            " OR evidence_id IN (SELECT evidence_id FROM receipts WHERE receipt_id = ?)"
            " ORDER BY rowid",
            (evidence_id, evidence_ref),
        )
        # Requesters choose references and ids of executions, and could choose one that is taken:
        # the oldest record says which of the two it is.
        rows = rows or self._database.rows(
            "SELECT document, execution_id = ? FROM evidence_records"
            " WHERE execution_id = ? OR evidence_ref = ? ORDER BY rowid",
            (evidence_ref, evidence_ref, evidence_ref),
        )
        return tuple(_decoded(row[0]) for row in rows if row[1] == rows[0][1])

    def naming(self, digest: str) -> tuple[dict[str, Json], ...]:
        """Every record with this digest in it, oldest first."""
        rows = self._database.rows(
            "SELECT document FROM evidence_records WHERE instr(document, ?) ORDER BY rowid",
            (f'"{digest}"',),
        )
        return tuple(_decoded(row[0]) for row in rows)

    def of_execution(self, execution_id: str) -> tuple[dict[str, Json], ...]:
        rows = self._database.rows(
            "SELECT document FROM evidence_records WHERE execution_id = ? ORDER BY rowid",
            (execution_id,),
        )
        return tuple(_decoded(row[0]) for row in rows)


def _decoded(document: str) -> dict[str, Json]:
    decoded: dict[str, Json] = json.loads(document)
    return decoded


def _command(plan: Plan) -> dict[str, Json]:
    return {
        "argv": list(plan.argv),
        "executable": plan.proof.executable.path,
        **({} if plan.image is None else {"image": plan.image.id}),
        "environment": sorted(plan.environment),  # names; values may be secrets
        "working_directory": plan.working_directory,
        "stdin_bytes": len(plan.stdin),
        "secrets": [use.name for use in plan.secrets],
    }


def _output(capture: Capture, redact: Redact) -> dict[str, Json]:
    return {
        "stdout": _summary(capture.stdout, redact),
        "stderr": _summary(capture.stderr, redact),
    }


def summary(stream: Stream, redact: Redact) -> str:
    """The beginning of a stream, redacted."""
    # Redact more than is stored: a secret that the cut would split is still matched whole.
    shown = redact(stream.kept[: 2 * SUMMARY_BYTES])[:SUMMARY_BYTES]
    return shown.decode("utf-8", "replace")


_SILENT = {"summary": "", "bytes": 0, "kept": 0, "truncated": False}


def _summary(stream: Stream, redact: Redact) -> dict[str, Json]:
    if stream is SILENCE:
        return _SILENT
    return {
        "summary": summary(stream, redact),
        "bytes": count(stream.total_bytes),
        "kept": len(stream.kept),
        "truncated": stream.truncated,
    }


def _full_output(facts: ExecutionFacts, capture: Capture) -> dict[str, Json]:
    return {
        "session": facts.session,
        "execution_id": facts.execution_id,
        "stdout_sha256": capture.stdout.sha256,
        "stderr_sha256": capture.stderr.sha256,
    }


def file_document(file: Collected) -> dict[str, Json]:
    """A collected file, as every record names it."""
    return {
        "name": file.name,
        "path": file.path,
        "kind": file.kind,
        "type": file.type,
        "size": file.size,
        "sha256": file.sha256,
        "blake3": file.blake3,
    }


def _lost(file: NotCollected) -> dict[str, Json]:
    return {
        "path": file.path,
        "kind": file.kind,
        "reason": file.reason,
        "size": count(file.size) if file.size is not None else None,
    }


def _violation(broken: Violation) -> dict[str, Json]:
    return {"code": broken.code, "field": broken.field}
