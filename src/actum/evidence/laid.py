"""What a frame of the journal says beside its records: what starts with them, or has ended."""

from __future__ import annotations

from actum.evidence.encoding import encoded
from actum.evidence.executions import Opening, started_columns
from actum.evidence.facts import ExecutionFacts, Intent
from actum.evidence.receipt import Receipt
from actum.evidence.trace import rfc3339
from actum.store.frames import ACTION, ACTION_END, END, FILE, START, Part, columns


def started_part(intent: Intent, opening: Opening, pending_seq: int) -> Part:
    """Makes an id PENDING."""
    short = encoded([*started_columns(intent).values(), opening.owner, pending_seq])
    return START, columns(short, opening.document)


def ended_part(
    facts: ExecutionFacts,
    receipt: Receipt,
    *,
    final_seq: int,
    result: bytes | None,
    record: bytes,
    events: bytes,
) -> Part:
    """Makes it FINAL, with all that is kept of it."""
    short = encoded(
        [
            *(facts.contract.execution_id, facts.outcome, facts.receipt_id),
            *(rfc3339(facts.ended_at), facts.evidence_id, facts.evidence_ref),
            *(receipt.sha256, final_seq),
        ]
    )
    return END, columns(short, result or b"", record, receipt.encoded, events)


def file_part(blake3: str, content: bytes) -> Part:
    """Keeps a small collected file."""
    return FILE, columns(blake3.encode(), content)


def opened_part(pending_seq: int, owner: str) -> Part:
    """Makes an action of the pure plane open."""
    return ACTION, columns(b"%d" % pending_seq, owner.encode())


def closed_part(pending_seq: int) -> Part:
    return ACTION_END, (b"%d" % pending_seq,)
