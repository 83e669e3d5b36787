"""What is known of an execution before it starts, encoded once for all of its records.

The evidence record and the receipt's statement begin with the same facts whatever happens next.
They are written down before the start, as the opening from which an execution whose process dies
can still be closed. If it ends as it should, its records are these bytes and what came after.

The larger part follows from the judgement alone (tool, adapter, policy, proof) and is the same for
every execution that rests on it: that is put together once per judgement.
"""

from __future__ import annotations

from actum.contract.model import Json
from actum.evidence.audit import record, record_of_judgement
from actum.evidence.checklists import Line, before_the_start
from actum.evidence.encoding import encoded
from actum.evidence.facts import Intent
from actum.evidence.receipt import asked, asked_by_judgement, joined
from actum.evidence.record import begun
from actum.value import value


@value
class Draft:
    intent: Intent
    record: bytes  #: the part of the evidence record that is known, a JSON object
    predicate: bytes  #: the same of the receipt's predicate
    audit: dict[str, Json]  #: what every audit record about it says; never changed
    pre: tuple[Line, ...]  #: the pre-execution checklist, but for its last line
    pre_encoded: bytes


@value
class _Shared:
    """What follows from a judgement."""

    predicate: bytes
    audit: dict[str, Json]
    pre: tuple[Line, ...]
    pre_encoded: bytes


class _Judgements:
    """The newest ones and what follows from them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[object, _Shared]] = {}

    def shared(self, intent: Intent) -> _Shared:
        if type(intent) is not Intent:
            return _shared(intent)  # how it was refused says more
        rests_on = (
            *(intent.tool, intent.adapter, intent.policy, intent.checks, intent.proof),
            intent.foreseen,
        )
        # By identity: these values never change, and an entry holds them, so that no other can get
        # their place in memory while it is here.
        key = (*map(id, rests_on), intent.contract.tool_id)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _JUDGEMENTS:
                self._kept = {}
            found = self._kept[key] = (rests_on, _shared(intent))
        return found[1]


_JUDGEMENTS = 256
_judgements = _Judgements()


def _shared(intent: Intent) -> _Shared:
    pre = before_the_start(intent)
    return _Shared(
        predicate=encoded(asked_by_judgement(intent)),
        audit=record_of_judgement(intent),
        pre=pre,
        pre_encoded=encoded(pre),
    )


def draft(intent: Intent) -> Draft:
    """Holds no value of the environment and no stdin."""
    shared = _judgements.shared(intent)
    return Draft(
        intent=intent,
        record=encoded(begun(intent)),
        predicate=joined(encoded(asked(intent)), shared.predicate),
        audit=record(intent, shared.audit),
        pre=shared.pre,
        pre_encoded=shared.pre_encoded,
    )
