"""`executor_reviews`: each is a verdict that a key of ours signed, and that the log names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.records.reviews import PAYLOAD_TYPE
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.log_findings import LogReading
from actum.store import dsse
from actum.store.keys import PublicKey
from actum.store.snapshot import Snapshot

_COLUMNS = ("seq", "executor_id", "source_sha256", "approved", "envelope")


def review_findings(
    database: Snapshot, reading: LogReading, trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    """Every review. The first REVIEW record of the log is of row 1, and so on."""
    logged: Sequence[tuple[int, Json]] = reading.facts.reviews
    seen = set()
    for values in database.scan("executor_reviews", _COLUMNS):
        seq, subject = values[0], f"executor review {values[0]}"
        seen.add(seq)
        if not 1 <= seq <= len(logged):
            detail = "executor_reviews.seq: no audit record is about this row"
            yield Finding(subject, "record", False, detail)
            continue
        record, digest = logged[seq - 1]
        signer = reading.signer_at(record)
        found = _row_findings(subject, values, digest, signer, trusted)
        yield from guarded(subject, "shape", found)
    for seq in sorted(set(range(1, len(logged) + 1)) - seen):
        detail = f"executor_reviews: its row is gone; audit record {logged[seq - 1][0]} names it"
        yield Finding(f"executor review {seq}", "present", False, detail)


def _row_findings(
    subject: str,
    values: tuple[Any, ...],
    logged: Json,
    signer: str | None,
    trusted: Mapping[str, PublicKey],
) -> Iterator[Finding]:
    _, executor_id, source_sha256, approved, text = values
    digest = sha256_bytes(text.encode("utf-8", "surrogatepass"))
    differs = difference("SHA-256 of executor_reviews.envelope", logged, digest)
    yield judged(subject, "verdict", digest == logged, differs)
    envelope = json.loads(text)
    review = json.loads(dsse.verify(envelope, trusted, payload_type=PAYLOAD_TYPE))
    signed_by = dsse.signers(envelope, trusted)
    differs = difference("key of executor_reviews.envelope", signer, ", ".join(signed_by))
    yield judged(subject, "signer", signed_by == [signer], differs)
    expected = {
        "executor_id": (review["executor"] or {}).get("executor_id"),
        "source_sha256": review["source_sha256"],
        "approved": int(review["approved"]),
    }
    found = {"executor_id": executor_id, "source_sha256": source_sha256, "approved": approved}
    differing = [
        difference(f"executor_reviews.{name}", value, found[name])
        for name, value in expected.items()
        if found[name] != value or type(found[name]) is not type(value)
    ]
    yield judged(subject, "columns", not differing, "; ".join(differing))
