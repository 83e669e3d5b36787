"""`open_actions`: actions of the pure plane that were started and not ended, and their owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.verify.findings import Finding, difference, judged
from actum.evidence.verify.unbound import Unbound
from actum.store.snapshot import Snapshot

_TABLE = "open_actions"


def action_findings(
    database: Snapshot, actions: Mapping[int, Json], unbound: Unbound
) -> Iterator[Finding]:
    """`actions` are those that the log has open, each with the digest of its owner."""
    waiting = dict(actions)
    for seq, owner in database.scan(_TABLE, ("pending_seq", "owner")):
        subject = f"open action {seq}"
        if seq not in waiting:
            detail = f"{_TABLE}.pending_seq: no action that audit record {seq} opened is open"
            yield Finding(subject, "record", False, detail)
            continue
        expected = waiting.pop(seq)
        if expected is None:
            unbound.count(f"table {_TABLE}")
            continue
        found = sha256_bytes(str(owner).encode("utf-8", "surrogatepass"))
        differs = difference(f"SHA-256 of {_TABLE}.owner", expected, found)
        same = isinstance(owner, str) and found == expected
        yield judged(subject, "owner", same, differs)
    for seq in waiting:
        detail = f"{_TABLE}: its row is gone; audit record {seq} opened it and none closed it"
        yield Finding(f"open action {seq}", "present", False, detail)
