"""What a frame of the journal says beside its records: what starts with them, or has ended."""

from __future__ import annotations

import json

from actum.evidence.draft import Draft
from actum.evidence.encoding import encoded
from actum.evidence.executions import Opening
from actum.evidence.facts import ExecutionFacts
from actum.evidence.receipt import Receipt
from actum.evidence.sealing import Told
from actum.evidence.trace import rfc3339
from actum.store.frames import ACTION, ACTION_END, END, FILE, START, Frame, Part, columns
from actum.store.keys import Signer
from actum.value import replace


def started_part(begun: Draft, opening: Opening, pending_seq: int) -> Part:
    """Makes an id PENDING."""
    return START, columns(begun.row(opening.owner, pending_seq), opening.document)


def ended_part(
    facts: ExecutionFacts, made: Told, receipt: Receipt, final_seq: int, result: bytes | None
) -> Part:
    """Makes it FINAL, with its signed receipt and all else that is kept of it."""
    row = encoded(
        [
            *(facts.contract.execution_id, facts.outcome, facts.receipt_id),
            *(rfc3339(facts.ended_at), facts.evidence_id, facts.evidence_ref),
            *(receipt.sha256, final_seq),
        ]
    )
    return END, columns(row, result or b"", made.record, receipt.encoded, made.events)


def signed(frame: Frame, signer: Signer) -> Frame:
    """`frame` with its receipts signed, and the records that name them whole.

    Only frames of an older version need it: their receipts were signed when they were filed.
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
    """Keeps a small collected file."""
    return FILE, columns(blake3.encode(), content)


def opened_part(pending_seq: int, owner: str) -> Part:
    """Makes an action of the pure plane open."""
    return ACTION, columns(b"%d" % pending_seq, owner.encode())


def closed_part(pending_seq: int) -> Part:
    return ACTION_END, (b"%d" % pending_seq,)
