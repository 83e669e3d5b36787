"""The parts of a journal entry beside its audit records, and the same columns for a transaction."""

from __future__ import annotations

import json

from actum.contract.model import Json
from actum.evidence.executions import Opening
from actum.evidence.records.closing import ClosingRecord
from actum.evidence.records.encoding import encoded
from actum.evidence.records.facts import ExecutionFacts, Intent
from actum.evidence.records.opening import OpeningRecord, started_columns
from actum.evidence.records.receipt import Receipt
from actum.evidence.records.trace import rfc3339
from actum.store.frames import ACTION, ACTION_END, END, FILE, START, Columns, Frame, Part, columns
from actum.store.keys import Signer
from actum.store.writer import ended, started
from actum.value import replace


def started_part(begun: OpeningRecord, opening: Opening, pending_seq: int) -> Part:
    """The start of an execution: makes its id PENDING."""
    return START, columns(begun.row(opening.owner, pending_seq), opening.document)


def ended_part(
    facts: ExecutionFacts,
    made: ClosingRecord,
    receipt: Receipt,
    final_seq: int,
    result: bytes | None,
) -> Part:
    """The end of an execution: makes its id FINAL, with its signed receipt and records."""
    short, documents = _ended(facts, made, receipt, final_seq, result)
    return END, columns(encoded(short), *documents)


def ended_row(
    facts: ExecutionFacts,
    made: ClosingRecord,
    receipt: Receipt,
    final_seq: int,
    result: bytes | None,
) -> Columns:
    """The same columns for a transaction, which writes them without a frame."""
    short, documents = _ended(facts, made, receipt, final_seq, result)
    return ended(short, *documents)


def _ended(
    facts: ExecutionFacts,
    made: ClosingRecord,
    receipt: Receipt,
    final_seq: int,
    result: bytes | None,
) -> tuple[list[Json], tuple[bytes, ...]]:
    short = [
        *(facts.contract.execution_id, facts.outcome.value, facts.receipt_id),
        *(rfc3339(facts.ended_at), facts.evidence_id, facts.evidence_ref),
        *(receipt.sha256, final_seq),
    ]
    return short, (result or b"", made.record, receipt.encoded, made.events)


def started_row(intent: Intent, opening: Opening | None, pending_seq: int | None) -> Columns:
    """The columns of a start; a refusal has no opening."""
    owner, document = (opening.owner, opening.document.decode()) if opening else (None, None)
    return started(*started_columns(intent).values(), owner, pending_seq, document)


def signed(frame: Frame, signer: Signer) -> Frame:
    """`frame` with its receipts signed and the audit records that name them completed.

    Only frames of older versions need it: these signed receipts at the write-out.
    """
    if not frame.sealed:
        return frame
    records, ended = [*frame.records], [*frame.ended]
    for row in frame.sealed:
        receipt = Receipt(row["receipt_id"], row["statement"].encode(), signer)
        records.append(encoded({**json.loads(row["audit"]), "receipt_sha256": receipt.sha256}))
        ended.append(
            {
                **row,
                "envelope": receipt.encoded.decode(),
                "sha256": receipt.sha256,
                "final_seq": frame.first + len(records) - 1,
            }
        )
    return replace(frame, records=tuple(records), ended=tuple(ended), sealed=())


def file_part(blake3: str, content: bytes) -> Part:
    """A small collected file."""
    return FILE, columns(blake3.encode(), content)


def opened_part(pending_seq: int, owner: str) -> Part:
    """The start of an action of the pure plane."""
    return ACTION, columns(b"%d" % pending_seq, owner.encode())


def closed_part(pending_seq: int) -> Part:
    return ACTION_END, (b"%d" % pending_seq,)
