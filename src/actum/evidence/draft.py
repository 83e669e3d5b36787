"""What is known of an execution before it starts, encoded once for all of its records.

The evidence record and the receipt's statement begin with the same facts whatever happens next.
They are written down before the start, as the opening from which an execution whose process dies
can still be closed. If it ends as it should, its records are these bytes and what came after.

The larger part follows from the judgement alone (tool, adapter, policy, proof) and is the same for
every execution that rests on it: that is put together once per judgement. Of a request that comes
again the rest is a form to be filled in (`evidence.forms`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from actum.contract.model import Json
from actum.contract.moments import utc_text
from actum.evidence.audit import allowed, pending, record, record_of_judgement
from actum.evidence.checklists import Line, before_the_start
from actum.evidence.encoding import encoded
from actum.evidence.executions import started_columns
from actum.evidence.facts import Intent
from actum.evidence.forms import (
    Form,
    Words,
    mark,
    marked_moment,
    marked_number,
    plain,
    shape,
)
from actum.evidence.receipt import asked, asked_by_judgement, joined
from actum.evidence.record import begun
from actum.value import replace, value


@value
class _Shared:
    """What follows from a judgement."""

    rests_on: tuple[object, ...]
    predicate: bytes
    audit: dict[str, Json]
    pre: tuple[Line, ...]
    pre_encoded: bytes


class _Judgements:
    """The newest ones and what follows from them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], _Shared] = {}

    def shared(self, intent: Intent) -> _Shared:
        if type(intent) is not Intent:
            return _shared(intent)  # how it was refused says more
        rests_on = _rests_on(intent)
        # By identity: these values never change, and an entry holds them, so that no other can get
        # their place in memory while it is here.
        key = (*map(id, rests_on), intent.contract.tool_id)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _JUDGEMENTS:
                self._kept = {}
            found = self._kept[key] = _shared(intent)
        return found


_JUDGEMENTS = 256
_judgements = _Judgements()


def _rests_on(intent: Intent) -> tuple[object, ...]:
    return (
        *(intent.tool, intent.adapter, intent.policy, intent.checks, intent.proof),
        intent.foreseen,
    )


def _shared(intent: Intent) -> _Shared:
    pre = before_the_start(intent)
    return _Shared(
        rests_on=_rests_on(intent),
        predicate=encoded(asked_by_judgement(intent)),
        audit=record_of_judgement(intent),
        pre=pre,
        pre_encoded=encoded(pre),
    )


class Draft:
    """One execution that is about to start. Holds no value of the environment and no stdin."""

    forms: Forms | None = None  #: that it was filled into, and with what
    words: Words

    def __init__(self, intent: Intent, shared: _Shared) -> None:
        self.intent = intent
        self.shared = shared

    @property
    def pre(self) -> tuple[Line, ...]:
        """The pre-execution checklist, but for its last line."""
        return self.shared.pre

    @cached_property
    def record(self) -> bytes:
        """The part of the evidence record that is known, a JSON object."""
        return encoded(begun(self.intent))

    @cached_property
    def predicate(self) -> bytes:
        """The same of the receipt's predicate."""
        return joined(encoded(asked(self.intent)), self.shared.predicate)

    @cached_property
    def audit(self) -> dict[str, Json]:
        """What every audit record about it says; never changed."""
        return record(self.intent, self.shared.audit)

    def opening(self) -> bytes:
        """All of it in one document, from which it can be closed if its process dies."""
        parts = (self.record, self.predicate, self.shared.pre_encoded)
        return b'{"record":%s,"predicate":%s,"pre":%s}' % parts

    def decision(self) -> bytes:
        """The audit record that it is allowed."""
        return encoded(allowed(self.audit))

    def pending(self, opening_sha256: str) -> bytes:
        """The audit record that it is about to start."""
        return encoded(pending(self.audit, opening_sha256))

    def row(self, owner: str, pending_seq: int) -> bytes:
        """The short columns of its row, as a frame has them."""
        return encoded([*started_columns(self.intent).values(), owner, pending_seq])


class _Filled(Draft):
    """The same of a request that came before."""

    forms: Forms

    def __init__(self, intent: Intent, shared: _Shared, forms: Forms, words: Words) -> None:
        self.intent = intent
        self.shared = shared
        self.forms = forms
        self.words = words

    @cached_property
    def record(self) -> bytes:
        return self.forms.record.filled(self.words)

    @cached_property
    def predicate(self) -> bytes:
        return self.forms.predicate.filled(self.words)

    def opening(self) -> bytes:
        return self.forms.opening.filled(self.words)

    def decision(self) -> bytes:
        return self.forms.decision.filled(self.words)

    def pending(self, opening_sha256: str) -> bytes:
        return self.forms.pending.filled([*self.words, opening_sha256.encode()])

    def row(self, owner: str, pending_seq: int) -> bytes:
        return self.forms.row.filled([*self.words, owner.encode(), b"%d" % pending_seq])


#: Of what `_words` finds.
_WORDS = shape(ids=4, digests=3, moments=1)


def _words(intent: Intent) -> Words | None:
    """In what equal requests that rest on one judgement differ. Nothing is judged by these words;
    each is only said."""
    return plain(
        (
            intent.contract.execution_id,
            intent.trace_id,
            intent.receipt_id,
            intent.evidence_id,
            intent.contract_sha256,
            intent.identity_sha256,
            intent.input_digest,
            utc_text(intent.started_at),
        ),
        _WORDS,
    )


AnIntent = TypeVar("AnIntent", bound=Intent)
_MARKED = marked_moment()
#: What `marked` puts in the place of each of `_words`.
MARKS = [*map(mark, range(7)), utc_text(_MARKED)]


def marked(intent: AnIntent) -> AnIntent:
    return replace(
        intent,
        contract=replace(intent.contract, execution_id=MARKS[0]),
        trace_id=MARKS[1],
        receipt_id=MARKS[2],
        evidence_id=MARKS[3],
        contract_sha256=MARKS[4],
        identity_sha256=MARKS[5],
        input_digest=MARKS[6],
        started_at=_MARKED,
    )


class Forms:
    """Of what is written down of equal requests before their start."""

    def __init__(self, intent: Intent, shared: _Shared) -> None:
        sha256_or_owner, seq = mark(8), marked_number()
        draft = Draft(marked(intent), shared)
        marks = [*MARKS, sha256_or_owner, str(seq)]
        self.record = Form(draft.record, marks)
        self.predicate = Form(draft.predicate, marks)
        self.opening = Form(draft.opening(), marks)
        self.decision = Form(draft.decision(), marks)
        self.pending = Form(draft.pending(sha256_or_owner), marks)
        self.row = Form(draft.row(sha256_or_owner, seq), marks)

    def give_back(self, written: Draft, words: Words) -> bool:
        """Whether they say exactly what was written without them."""
        filled = _Filled(written.intent, written.shared, self, words)
        return (
            filled.record == written.record
            and filled.predicate == written.predicate
            and filled.opening() == written.opening()
            and filled.decision() == written.decision()
            and filled.pending("0") == written.pending("0")
            and filled.row("1", 2) == written.row("1", 2)
        )


class _Requests:
    """The newest ones, and the forms of those that came again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[_Shared, Forms | None]] = {}

    def draft(self, intent: Intent) -> Draft:
        plan = intent.plan
        if (
            type(intent) is not Intent
            or plan is None
            or plan.proof is not intent.proof
            or plan.secrets
        ):
            return Draft(intent, _judgements.shared(intent))
        contract = intent.contract
        metadata = contract.metadata
        # All that the documents say beside `_words`. What never changes is known by identity, as a
        # judgement is, and held by the judgement that the entry holds; the rest are texts and
        # numbers.
        key = (
            *(id(intent.tool), id(intent.adapter), id(intent.policy), id(intent.checks)),
            *(id(intent.proof), id(intent.foreseen), contract.tool_id),
            *(plan.argv, plan.working_directory, len(plan.stdin)),
            *(intent.attempt, intent.session, intent.parent_receipt),
            *(metadata.requested_by, metadata.purpose, metadata.evidence_ref),
            *plan.environment,
        )
        found = self._kept.get(key)
        if found is None:
            shared = _judgements.shared(intent)
            if (
                sum(len(each) for each in (*plan.argv, *key) if isinstance(each, str))
                <= _CHARACTERS
            ):
                if len(self._kept) >= _REQUESTS:
                    self._kept = {}
                self._kept[key] = shared, None
            return Draft(intent, shared)
        shared, forms = found
        words = _words(intent)
        if words is None:
            return Draft(intent, shared)
        if forms is None:
            forms = Forms(intent, shared)
            if not forms.give_back(Draft(intent, shared), words):
                return Draft(intent, shared)
            self._kept[key] = shared, forms
        return _Filled(intent, shared, forms, words)


_REQUESTS = 256
_CHARACTERS = 16_384  #: of one; what says more is not kept
_requests = _Requests()
draft = _requests.draft
