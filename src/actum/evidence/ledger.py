"""The two durable writes of an execution: before its start, and after its end.

`write_ahead` commits the decision and a PENDING record; only then may anything start. `seal` signs
the receipt and commits it with the other records of the end. Each is one frame of the journal, so
an execution costs two syncs and is at any instant unknown, open or closed, never in between.
A write with rows of other tables (an approval, a retry), a refusal and an entry that is too large
for a frame are transactions of the database instead. Both go through `store.writer`. What the
ledger cannot write does not happen. Proved by tests/unit/evidence/test_ledger.py and
tests/crash/test_signed_before_the_answer.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter, is_

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence import recovery
from actum.evidence.adoption import adopt_rows
from actum.evidence.background_writer import MANY, TOO_MANY, BackgroundWriter
from actum.evidence.executions import (
    Opening,
    may_have_run,
    not_open,
    require_open,
    require_startable,
    require_unstarted,
)
from actum.evidence.journal_entry import (
    ended_part,
    ended_row,
    file_part,
    started_part,
    started_row,
)
from actum.evidence.log import Log, Page
from actum.evidence.records.audit import allowed, denied, final, malformed, pending
from actum.evidence.records.closing import ClosingRecord, closing_record
from actum.evidence.records.encoding import encoded
from actum.evidence.records.evidence_record import Redact
from actum.evidence.records.facts import ExecutionFacts, Intent, Opened
from actum.evidence.records.opening import OpeningRecord
from actum.evidence.records.receipt import Receipt
from actum.evidence.traces import require_storable
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.frames import Columns
from actum.store.keys import Signer
from actum.store.writer import Rows, event_rows
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
        """`behind`: a background thread writes journal entries out. Without it, an execution
        writes them out once there are many."""
        self._database = database
        self._blobs = blobs
        self._redact = redact
        self.log = Log(database, signer)
        self.log.adopt()
        adopt_rows(database, self.log)
        self.background_writer = BackgroundWriter(database, self.log, works=behind)
        self._most = TOO_MANY if behind else MANY

    def content(self, blake3: str) -> bytes:
        """The exact bytes of a file that an execution left; raises if they changed."""
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
        begun = OpeningRecord(intent)
        opening = recovery.opening(begun)
        if also is not None or not self.log.takes(len(opening.document)):
            with self.log.page() as page:
                require_startable(page.cursor, intent)
                page.append(allowed(begun.audit))
                if also is not None:
                    also(page)
                return _opened(page, begun, opening)
        if self.log.in_journal() >= self._most:
            self._database.write_out()
        decision = encoded(allowed(begun.audit))
        start = encoded(pending(begun.audit, opening.sha256))
        execution_id = intent.contract.execution_id
        with self.log.entry() as entry:
            require_unstarted(entry.outcome_of(execution_id), intent)
            entry.append_encoded(decision)
            seq = entry.append_encoded(start)
            entry.start(execution_id, started_part(begun, opening, seq))
            return Opened(pending_seq=seq, record=begun)

    def another_attempt(self, intent: Intent, also: Callable[[Page], None] | None = None) -> Opened:
        """Record that a retry or fallback of an open execution is about to start."""
        begun = OpeningRecord(intent)
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
            # Large files first: the commit must not name a file that is not on the disk.
            stored = self._blobs.put_large(files) | set(small)
        execution_id = facts.contract.execution_id
        require_storable(facts.events, execution_id)
        begun = _begun(facts)
        answer = None if result is None else encoded(result)
        result_sha256 = None if answer is None else sha256_bytes(answer)

        def described(left: tuple[str, ...] | None) -> ClosingRecord:
            return closing_record(
                facts,
                left,
                begun=begun,
                stored=stored,
                redact=self._redact,
                result_sha256=result_sha256,
            )

        # The kernel may need longer to remove a tool's processes than we need to describe the
        # execution. So describe them as gone, which they nearly always are, and check before
        # anything is written.
        cleanup = facts.cleanup
        made = described(facts.leftovers if cleanup is None else ())
        if cleanup is not None and (left := cleanup()):
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
                # A rotation may have happened since: only the lock makes the key certain.
                receipt = receipt.by(entry.signer)
                final_seq = entry.append(final(begun.audit, facts, receipt.sha256))
                part = ended_part(facts, made, receipt, final_seq, answer)
                entry.end(execution_id, facts.outcome, part)
            return receipt
        with self.log.page() as page:
            receipt = receipt.by(page.signer)
            if facts.refused_at is not None and facts.opened is None:
                page.append(denied(begun.audit, facts))
            final_seq = page.append(final(begun.audit, facts, receipt.sha256))
            end = ended_row(facts, made, receipt, final_seq, answer)
            rows = _closed(page.cursor, facts, end)
            rows.add_files(small)
            rows.insert(page.cursor)
        return receipt

    def close_interrupted(self, execution_id: str) -> Receipt:
        """Seal an execution whose process is gone."""
        return recovery.close_interrupted(self.log, execution_id)

    def malformed(self, body: bytes, at: datetime) -> int:
        """Record input that is not a contract. It gets no receipt."""
        with self.log.page() as page:
            return page.append(malformed(body, at))


def _opened(page: Page, begun: OpeningRecord, opening: Opening) -> Opened:
    seq = page.append(pending(begun.audit, opening.sha256))
    rows = Rows()
    rows.start(started_row(begun.intent, opening, seq))
    rows.insert(page.cursor)
    return Opened(pending_seq=seq, record=begun)


def _closed(cursor: sqlite3.Cursor, facts: ExecutionFacts, end: Columns) -> Rows:
    """The rows of an execution that ends in a transaction."""
    rows, events = Rows(), event_rows(end)
    if facts.opened is not None or facts.capture is not None:
        require_open(cursor, facts)
        rows.end(end, events)
    elif may_have_run(cursor, facts.execution_id):
        rows.add_receipt(end, events)
    else:
        rows.start(started_row(facts, None, None))
        rows.end(end, events)
    return rows


_of_intent = attrgetter(*(field.name for field in fields(Intent)))


def _begun(facts: ExecutionFacts) -> OpeningRecord:
    """The opening record that was written, unless the facts have changed since."""
    written = facts.opened.record if facts.opened else None
    if written is not None and all(map(is_, _of_intent(facts), _of_intent(written.intent))):
        return written
    return OpeningRecord(facts)
