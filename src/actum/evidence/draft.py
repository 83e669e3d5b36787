"""What is known of an execution before it starts, encoded once for all of its records.

The evidence record and the receipt's statement begin with the same facts whatever happens next.
They are written down before the start, as the opening from which an execution whose process dies
can still be closed. If it ends as it should, its records are these bytes and what came after.
"""

from __future__ import annotations

from functools import cached_property

from actum.contract.model import Json
from actum.evidence.audit import record
from actum.evidence.checklists import Line, before_the_start
from actum.evidence.encoding import encoded
from actum.evidence.executions import started_columns
from actum.evidence.facts import Intent
from actum.evidence.receipt import asked
from actum.evidence.record import begun


class Draft:
    """One execution that is about to start. Holds no value of the environment and no stdin."""

    def __init__(self, intent: Intent) -> None:
        self.intent = intent

    @cached_property
    def pre(self) -> tuple[Line, ...]:
        """The pre-execution checklist, but for its last line."""
        return before_the_start(self.intent)

    @cached_property
    def record(self) -> bytes:
        """The part of the evidence record that is known, a JSON object."""
        return encoded(begun(self.intent))

    @cached_property
    def predicate(self) -> bytes:
        """The same of the receipt's predicate."""
        return encoded(asked(self.intent))

    @cached_property
    def audit(self) -> dict[str, Json]:
        """What every audit record about it says; never changed."""
        return record(self.intent)

    def opening(self) -> bytes:
        """All of it in one document, from which it can be closed if its process dies."""
        parts = (self.record, self.predicate, encoded(self.pre))
        return b'{"record":%s,"predicate":%s,"pre":%s}' % parts

    def row(self, owner: str, pending_seq: int) -> bytes:
        """The short columns of its row, as a frame has them."""
        return encoded([*started_columns(self.intent).values(), owner, pending_seq])
