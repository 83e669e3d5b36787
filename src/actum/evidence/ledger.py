"""The two durable writes of an execution: before it starts, and when it is over.

`write_ahead` commits the decision and a PENDING record; only then may anything start. `seal` signs
the receipt and commits it with everything else that came of it. Each is one frame of the journal,
so an execution costs two syncs and is at any instant unknown, open or closed, never in between.
What comes with rows of other tables (an approval, a retry), a refusal, and what is too large, is a
transaction of the database instead. What the ledger cannot write it does not let happen. Proved by
tests/unit/evidence/test_ledger.py and tests/crash/test_signed_before_the_answer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter, is_

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence import recovery
from actum.evidence.adoption import adopt_rows
from actum.evidence.audit import allowed, denied, final, malformed, pending
from actum.evidence.clerk import MANY, TOO_MANY, Clerk
from actum.evidence.draft import Draft
from actum.evidence.encoding import encoded
from actum.evidence.executions import (
    Opening,
    close_row,
    not_open,
    open_row,
    require_open,
    require_startable,
    require_unstarted,
)
from actum.evidence.facts import ExecutionFacts, Intent, Opened
from actum.evidence.laid import ended_part, file_part, started_part
from actum.evidence.log import Log, Page
from actum.evidence.receipt import Receipt
from actum.evidence.receipts import insert_receipt
from actum.evidence.record import Redact, insert_record
from actum.evidence.sealing import Told, told
from actum.evidence.traces import insert_events, require_fileable
from actum.store.blobs import BlobStore, insert_small
from actum.store.database import Database
from actum.store.keys import Signer
from actum.value import fields


class Ledger:
    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        signer: Signer,
        redact: Redact,
        behind: bool = True,
    ) -> None:
        """`behind`: what is laid down is filed by a thread; without one, by who comes when it is
        much."""
        self._database = database
        self._blobs = blobs
        self._redact = redact
        self.log = Log(database, signer)
        self.log.adopt()
        adopt_rows(database, self.log)
        self.clerk = Clerk(database, self.log, works=behind)
        self._most = TOO_MANY if behind else MANY

    def content(self, blake3: str) -> bytes:
        """A file that an execution left, exact or not at all."""
        return self._blobs.read(blake3)

    def write_ahead(
        self,
        intent: Intent,
        also: Callable[[Page], None] | None = None,
    ) -> Opened:
        """Record that `intent` is allowed and about to start; raises if it must not start.

        `also` joins the transaction: what it writes or refuses holds together with the start.
        """
        self._blobs.prepare()
        begun = Draft(intent)
        opening = recovery.opening(begun)
        if also is not None or not self.log.takes(len(opening.document)):
            with self.log.page() as page:
                require_startable(page.cursor, intent)
                page.append(allowed(begun.audit))
                if also is not None:
                    also(page)
                return _opened(page, begun, opening)
        if self.log.laid() >= self._most:
            self._database.file()
        decision = encoded(allowed(begun.audit))
        start = encoded(pending(begun.audit, opening.sha256))
        execution_id = intent.contract.execution_id
        with self.log.entry() as entry:
            require_unstarted(entry.outcome_of(execution_id), intent)
            entry.append_encoded(decision)
            seq = entry.append_encoded(start)
            entry.start(execution_id, started_part(begun, opening, seq))
            return Opened(pending_seq=seq, draft=begun)

    def another_attempt(self, intent: Intent, also: Callable[[Page], None] | None = None) -> Opened:
        """Record that a retry or fallback of an open execution is about to start."""
        begun = Draft(intent)
        opening = recovery.opening(begun)
        with self.log.page() as page:
            require_open(page.cursor, intent)
            if also is not None:
                also(page)
            return _opened(page, begun, opening)

    def seal(self, facts: ExecutionFacts, result: Mapping[str, Json] | None) -> Receipt:
        """Close an execution, or record a refusal. `result` must hold no raw output."""
        small: dict[str, bytes] = {}
        stored: set[str] = set()
        if facts.capture is not None and facts.capture.collected:
            files = [file.content for file in facts.capture.collected]
            small = self._blobs.small(files)
            # Large files first: once the commit says that they are there, they are.
            stored = self._blobs.put_large(files) | set(small)
        execution_id = facts.contract.execution_id
        require_fileable(facts.events, execution_id)
        begun = _begun(facts)
        answer = None if result is None else encoded(result)
        result_sha256 = None if answer is None else sha256_bytes(answer)

        def described(left: tuple[str, ...] | None) -> Told:
            return told(
                facts,
                left,
                begun=begun,
                stored=stored,
                redact=self._redact,
                result_sha256=result_sha256,
            )

        # The kernel may take longer to clear a tool away than we take to describe it. So it is
        # described as cleared away, which it nearly always is, and looked at before anything of it
        # is written down.
        clearing = facts.clearing
        made = described(facts.leftovers if clearing is None else ())
        if clearing is not None and (left := clearing()):
            made = described(left)
        receipt = Receipt(facts.receipt_id, made.statement, self.log.signer)
        room = len(made.record) + len(receipt.encoded) + len(made.events) + len(answer or b"")
        room += sum(map(len, small.values()))
        if facts.opened is not None and self.log.takes(room):
            with self.log.entry() as entry:
                if entry.outcome_of(execution_id) != (None,):
                    raise not_open(execution_id)
                for blake3, content in small.items():
                    entry.add(file_part(blake3, content))
                # Another key may have come since: only here is it certain whose turn it is.
                receipt = receipt.by(entry.signer)
                final_seq = entry.append(final(begun.audit, facts, receipt.sha256))
                part = ended_part(facts, made, receipt, final_seq, answer)
                entry.end(execution_id, facts.outcome, part)
            return receipt
        with self.log.page() as page:
            cursor = page.cursor
            receipt = receipt.by(page.signer)
            if facts.refused_at is not None and facts.opened is None:
                page.append(denied(begun.audit, facts))
            final_seq = page.append(final(begun.audit, facts, receipt.sha256))
            insert_small(cursor, small)
            close_row(cursor, facts, None if answer is None else answer.decode())
            insert_receipt(
                cursor,
                receipt,
                execution_id=facts.execution_id,
                evidence_id=facts.evidence_id,
                final_seq=final_seq,
            )
            insert_record(
                cursor,
                made.record,
                evidence_id=facts.evidence_id,
                execution_id=facts.execution_id,
                evidence_ref=facts.evidence_ref,
            )
            insert_events(cursor, receipt.receipt_id, facts.events)
        return receipt

    def close_interrupted(self, execution_id: str) -> Receipt:
        """Seal an execution whose process is gone."""
        return recovery.close_interrupted(self.log, execution_id)

    def malformed(self, body: bytes, at: datetime) -> int:
        """Record that something came which is no contract. It gets no receipt."""
        with self.log.page() as page:
            return page.append(malformed(body, at))


def _opened(page: Page, begun: Draft, opening: Opening) -> Opened:
    seq = page.append(pending(begun.audit, opening.sha256))
    open_row(page.cursor, begun.intent, opening, seq)
    return Opened(pending_seq=seq, draft=begun)


_of_intent = attrgetter(*(field.name for field in fields(Intent)))


def _begun(facts: ExecutionFacts) -> Draft:
    """What was written down before the start, unless more has become known of it since."""
    written = facts.opened.draft if facts.opened else None
    if written is not None and all(map(is_, _of_intent(facts), _of_intent(written.intent))):
        return written
    return Draft(facts)
