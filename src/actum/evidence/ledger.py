"""The two durable writes of an execution: before it starts, and when it is over.

`write_ahead` commits the decision and a PENDING record; only then may anything start. `seal`
commits everything that came of it. Each is one transaction, so an execution costs two syncs and
is at any instant unknown, open or closed, never in between. What the ledger cannot write it does
not let happen. Proved by tests/unit/evidence/test_ledger.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.audit import Audit, append
from actum.evidence.encoding import encoded
from actum.evidence.executions import close_row, open_row, reopen_row
from actum.evidence.facts import ExecutionFacts, Intent, Opened
from actum.evidence.receipt import Receipt, build_statement, sign_receipt
from actum.evidence.receipts import insert_receipt
from actum.evidence.record import Redact, build_record, insert_record
from actum.evidence.recovery import close_interrupted, opening
from actum.evidence.traces import insert_events
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.keys import Signer


class Ledger:
    def __init__(
        self, *, database: Database, blobs: BlobStore, signer: Signer, redact: Redact
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._signer = signer
        self._redact = redact

    def write_ahead(self, intent: Intent) -> Opened:
        """Record that `intent` is allowed and about to start; raises if it must not start."""
        self._blobs.prepare()
        with self._database.transaction() as cursor:
            append(cursor, Audit.allowed(intent))
            opened = Opened(pending_seq=append(cursor, Audit.pending(intent)))
            open_row(cursor, intent, opening(intent, opened))
        return opened

    def another_attempt(self, intent: Intent) -> Opened:
        """Record that a retry or fallback of an open execution is about to start."""
        with self._database.transaction() as cursor:
            opened = Opened(pending_seq=append(cursor, Audit.pending(intent)))
            reopen_row(cursor, intent, opening(intent, opened))
        return opened

    def seal(self, facts: ExecutionFacts, result: Mapping[str, Json] | None) -> Receipt:
        """Close an execution, or record a refusal. `result` must hold no raw output."""
        # Files first: once the commit says that they are there, they are.
        collected = facts.capture.collected if facts.capture else ()
        stored = {self._blobs.put(file.content) for file in collected}
        record = encoded(build_record(facts, stored, self._redact))
        answer = None if result is None else encoded(result)
        receipt = sign_receipt(
            build_statement(
                facts, sha256_bytes(record), None if answer is None else sha256_bytes(answer)
            ),
            self._signer,
        )
        with self._database.transaction() as cursor:
            close_row(cursor, facts, None if answer is None else answer.decode())
            if facts.refused_at is not None and facts.opened is None:
                append(cursor, Audit.denied(facts))
            final_seq = append(cursor, Audit.final(facts, receipt.sha256))
            insert_receipt(
                cursor,
                receipt,
                execution_id=facts.execution_id,
                evidence_id=facts.evidence_id,
                final_seq=final_seq,
            )
            insert_record(
                cursor,
                record,
                evidence_id=facts.evidence_id,
                execution_id=facts.execution_id,
                evidence_ref=facts.evidence_ref,
            )
            insert_events(cursor, receipt.receipt_id, facts.events)
        return receipt

    def close_interrupted(self, execution_id: str) -> Receipt:
        """Seal an execution whose process is gone."""
        return close_interrupted(self._database, self._signer, execution_id)

    def malformed(self, body: bytes, at: datetime) -> int:
        """Record that something came which is no contract. It gets no receipt."""
        with self._database.transaction() as cursor:
            return append(cursor, Audit.malformed(body, at))
