"""The closing record: evidence record, trace events and receipt statement of an ended execution."""

from __future__ import annotations

from collections.abc import Collection

from actum.contract.canonical import sha256_bytes
from actum.evidence.records.encoding import encoded
from actum.evidence.records.evidence_record import Redact, ended
from actum.evidence.records.facts import ExecutionFacts
from actum.evidence.records.opening import OpeningRecord
from actum.evidence.records.receipt import encode_statement, joined
from actum.value import value


@value(kw_only=False)
class ClosingRecord:
    events: bytes  #: the trace
    record: bytes  #: the evidence record
    statement: bytes  #: of the receipt


def closing_record(
    facts: ExecutionFacts,
    leftovers: tuple[str, ...] | None,
    *,
    begun: OpeningRecord,
    stored: Collection[str],
    redact: Redact,
    result_sha256: str | None,
) -> ClosingRecord:
    """Describe an ended execution; `stored` are the addresses of its files."""
    events = encoded([kept.document() for kept in facts.events])
    record = joined(begun.record, encoded(ended(facts, stored, redact, leftovers, begun.pre)))
    statement = encode_statement(
        facts, sha256_bytes(record), result_sha256, events=events, predicate=begun.predicate
    )
    return ClosingRecord(events, record, statement)
