"""What is said of an execution that is over, and the signature under it.

Everything here needs no lock. Whose turn it is to sign is certain only while nobody else can write;
so whoever holds the lock asks for `by` that signer, which nearly always is what there is already.
"""

from __future__ import annotations

from collections.abc import Collection

from actum.contract.canonical import sha256_bytes
from actum.evidence.audit import final
from actum.evidence.draft import Draft
from actum.evidence.encoding import encoded
from actum.evidence.facts import ExecutionFacts
from actum.evidence.receipt import Receipt, encode_statement, joined, sign_receipt
from actum.evidence.record import Redact, ended
from actum.store.keys import Signer
from actum.value import value


@value
class Sealed:
    """The documents of an ended execution."""

    facts: ExecutionFacts
    begun: Draft
    record: bytes  #: the evidence record
    statement: bytes
    signer: Signer
    receipt: Receipt  #: the statement, signed
    audit: bytes  #: the record that closes it in the log

    def by(self, signer: Signer) -> Sealed:
        """The same, signed by `signer`."""
        if signer is self.signer:
            return self
        return _signed(self.facts, self.begun, self.record, self.statement, signer)


def sealed(
    facts: ExecutionFacts,
    leftovers: tuple[str, ...] | None,
    *,
    begun: Draft,
    signer: Signer,
    stored: Collection[str],
    redact: Redact,
    events: bytes,
    result_sha256: str | None,
) -> Sealed:
    """Describe and sign; `events` are those of `facts`, `stored` the addresses of its files."""
    record = joined(begun.record, encoded(ended(facts, stored, redact, leftovers, begun.pre)))
    statement = encode_statement(
        facts, sha256_bytes(record), result_sha256, events=events, predicate=begun.predicate
    )
    return _signed(facts, begun, record, statement, signer)


def _signed(
    facts: ExecutionFacts, begun: Draft, record: bytes, statement: bytes, signer: Signer
) -> Sealed:
    receipt = sign_receipt(statement, facts.receipt_id, signer)
    return Sealed(
        facts=facts,
        begun=begun,
        record=record,
        statement=statement,
        signer=signer,
        receipt=receipt,
        audit=encoded(final(begun.audit, facts, receipt.sha256)),
    )
