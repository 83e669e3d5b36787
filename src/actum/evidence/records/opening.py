"""The opening record: the facts of an execution before its start, encoded once for all its records.

The evidence record and the receipt's statement begin with the same facts whatever happens next.
The ledger writes them before the start, so that an execution whose process dies can still be
closed. After a normal end, the records are these bytes and the facts of the end.
"""

from __future__ import annotations

from functools import cached_property

from actum.contract.model import Json
from actum.evidence.records.audit import closed, record
from actum.evidence.records.checklists import Line, before_the_start
from actum.evidence.records.encoding import encoded
from actum.evidence.records.evidence_record import begun
from actum.evidence.records.facts import Intent
from actum.evidence.records.receipt import asked
from actum.evidence.records.trace import rfc3339


class OpeningRecord:
    """One execution that is about to start. Holds no value of the environment and no stdin."""

    def __init__(self, intent: Intent) -> None:
        self.intent = intent

    @cached_property
    def pre(self) -> tuple[Line, ...]:
        """The pre-execution checklist, without its last line."""
        return before_the_start(self.intent)

    @cached_property
    def record(self) -> bytes:
        """The first half of the evidence record, a JSON object."""
        return encoded(begun(self.intent))

    @cached_property
    def predicate(self) -> bytes:
        """The first half of the receipt's predicate, a JSON object."""
        return encoded(asked(self.intent))

    @cached_property
    def audit(self) -> dict[str, Json]:
        """The fields common to its audit records; never changed."""
        return record(self.intent)

    def opening(self) -> bytes:
        """All of it in one document, from which it can be closed if its process dies."""
        parts = (self.record, self.predicate, encoded(self.pre))
        return b'{"record":%s,"predicate":%s,"pre":%s}' % parts

    def row(self, owner: str, pending_seq: int) -> bytes:
        """The short columns of its row, as a frame holds them."""
        return encoded([*started_columns(self.intent).values(), owner, pending_seq])


def started_columns(intent: Intent) -> dict[str, str]:
    """The columns of the execution's row at its start, by name."""
    return {
        "execution_id": intent.execution_id,
        "identity_sha256": intent.identity_sha256,
        "contract_sha256": intent.contract_sha256,
        "trace_id": intent.trace_id,
        "session": intent.session,
        # As in the receipt, which verification compares with this row.
        "tool_id": intent.tool.tool_id if intent.tool else closed(intent.contract.tool_id) or "",
        "started_at": rfc3339(intent.started_at),
    }
