"""What is known of an execution before it starts, encoded once for all of its records.

The evidence record and the receipt's statement begin with the same facts whatever happens next.
They are written down before the start, as the opening from which an execution whose process dies
can still be closed. If it ends as it should, its records are these bytes and what came after.
"""

from __future__ import annotations

from actum.evidence.checklists import Item, before_the_start
from actum.evidence.encoding import encoded
from actum.evidence.facts import Intent
from actum.evidence.receipt import asked
from actum.evidence.record import begun
from actum.value import value


@value
class Draft:
    intent: Intent
    record: bytes  #: the part of the evidence record that is known, a JSON object
    predicate: bytes  #: the same of the receipt's predicate
    pre: tuple[Item, ...]  #: the pre-execution checklist, but for its last line


def draft(intent: Intent) -> Draft:
    """Holds no value of the environment and no stdin."""
    return Draft(
        intent=intent,
        record=encoded(begun(intent)),
        predicate=asked(intent),
        pre=before_the_start(intent),
    )
