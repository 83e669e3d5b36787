"""What is said of an execution that is over."""

from __future__ import annotations

from collections.abc import Collection

from actum.contract.canonical import sha256_bytes
from actum.evidence.draft import Draft
from actum.evidence.encoding import encoded
from actum.evidence.facts import ExecutionFacts
from actum.evidence.receipt import encode_statement, joined
from actum.evidence.record import Redact, ended
from actum.value import value


@value(kw_only=False)
class Told:
    events: bytes  #: of the trace
    record: bytes  #: the evidence record
    statement: bytes  #: what the receipt states


def told(
    facts: ExecutionFacts,
    leftovers: tuple[str, ...] | None,
    *,
    begun: Draft,
    stored: Collection[str],
    redact: Redact,
    result_sha256: str | None,
) -> Told:
    """Describe it; `stored` are the addresses of its files."""
    events = encoded([kept.document() for kept in facts.events])
    record = joined(begun.record, encoded(ended(facts, stored, redact, leftovers, begun.pre)))
    statement = encode_statement(
        facts, sha256_bytes(record), result_sha256, events=events, predicate=begun.predicate
    )
    return Told(events, record, statement)
