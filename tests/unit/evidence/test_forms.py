"""What is filled in says, to the byte, what is said without a form."""

from __future__ import annotations

import json
import string
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.encoder import hasten
from actum.contract.model import Metadata
from actum.evidence import draft as drafts
from actum.evidence.draft import Draft, draft
from actum.evidence.facts import Intent
from actum.evidence.forms import Form, mark, marked_number, plain, shape
from actum.value import replace

from .factories import House, make_contract, make_facts, make_intent, make_plan, make_policy

DIGITS = string.digits + "abcdef"
TEXT = st.one_of(
    st.sampled_from(["", "%", "%b %s %%", "ses-1", "\n", '"', "\ud800", "é"]),
    st.text(max_size=40),
)
IDS = st.one_of(st.uuids().map(str), st.text(min_size=1, max_size=40), st.just("-" * 36))
DIGESTS = st.one_of(
    st.text(DIGITS, min_size=64, max_size=64), st.just("A" * 64), st.text(max_size=64)
)
MOMENTS = st.datetimes(timezones=st.just(UTC))


def words() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "execution_id": st.uuids().map(str),
            "trace_id": st.uuids().map(str),
            "receipt_id": st.uuids().map(str),
            "evidence_id": st.uuids().map(str),
            "contract_sha256": st.text(DIGITS, min_size=64, max_size=64),
            "identity_sha256": st.text(DIGITS, min_size=64, max_size=64),
            "input_digest": st.text(DIGITS, min_size=64, max_size=64),
            "started_at": MOMENTS,
        }
    )


def odd_words() -> st.SearchStrategy[dict[str, Any]]:
    """Some of which no form takes."""
    return st.fixed_dictionaries(
        {
            "execution_id": IDS,
            "trace_id": IDS,
            "receipt_id": IDS,
            "evidence_id": IDS,
            "contract_sha256": DIGESTS,
            "identity_sha256": DIGESTS,
            "input_digest": DIGESTS,
            "started_at": MOMENTS,
        }
    )


POLICY = make_policy()
PLAN = make_plan(make_contract(), POLICY)
#: In everything that a request says beside its judgement.
REQUESTS = st.fixed_dictionaries(
    {
        "session": TEXT,
        "parent_receipt": st.none() | TEXT,
        "attempt": st.integers(min_value=1, max_value=3),
        "requested_by": TEXT,
        "purpose": TEXT,
        "evidence_ref": st.none() | TEXT,
        "argv": st.lists(TEXT, max_size=3).map(tuple),
        "working_directory": TEXT,
        "stdin": st.binary(max_size=3),
        "environment": st.dictionaries(TEXT, st.just("secret"), max_size=3),
    }
)

EMPTY: dict[str, Any] = {
    "session": "ses-1",
    "parent_receipt": None,
    "attempt": 1,
    "requested_by": "agent:test",
    "purpose": "test",
    "evidence_ref": None,
    "argv": ("true",),
    "working_directory": "/",
    "stdin": b"",
    "environment": {},
}
EXAMPLE = {
    "execution_id": str(uuid.uuid4()),
    "trace_id": str(uuid.uuid4()),
    "receipt_id": str(uuid.uuid4()),
    "evidence_id": str(uuid.uuid4()),
    "contract_sha256": "a" * 64,
    "identity_sha256": "b" * 64,
    "input_digest": "c" * 64,
    "started_at": datetime(2031, 4, 5, 6, 7, 8, 9000, tzinfo=UTC),
}


def intent_of(request: dict[str, Any], words: dict[str, Any]) -> Intent:
    plan = replace(
        PLAN,
        argv=request["argv"],
        working_directory=request["working_directory"],
        stdin=request["stdin"],
        environment=request["environment"],
    )
    contract = make_contract(
        execution_id=words["execution_id"],
        metadata=Metadata(
            requested_by=request["requested_by"],
            requested_at=words["started_at"],
            purpose=request["purpose"],
            evidence_ref=request["evidence_ref"],
        ),
    )
    return make_intent(
        contract,
        policy=POLICY,
        plan=plan,
        session=request["session"],
        parent_receipt=request["parent_receipt"],
        attempt=request["attempt"],
        **{name: value for name, value in words.items() if name != "execution_id"},
    )


def said(written: Draft) -> tuple[object, ...]:
    return (
        written.opening(),
        written.record,
        written.predicate,
        written.audit,
        written.decision(),
        written.pending("0" * 64),
        written.row("boot pid:[1] 2 3", 17),
    )


@pytest.fixture(autouse=True, params=["plain encoder", "fast encoder"])
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from actum.contract import encoder

    monkeypatch.setattr(encoder._encoder, "fast", None)
    if request.param == "fast encoder":
        hasten()


@given(request=REQUESTS, first=words(), second=words(), third=words())
def test_the_start_of_a_request_that_comes_again(
    request: dict[str, Any], first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    draft(intent_of(request, first))
    for each in (second, third):
        intent = intent_of(request, each)
        filled = draft(intent)
        assert type(filled) is drafts._Filled  # or nothing is shown here
        assert said(filled) == said(Draft(intent, filled.shared))


@given(request=REQUESTS, first=words(), odd=odd_words())
def test_words_that_json_or_the_audit_log_would_not_leave_alone(
    request: dict[str, Any], first: dict[str, Any], odd: dict[str, Any]
) -> None:
    for each in (first, first, odd):
        intent = intent_of(request, each)
        written = draft(intent)
        assert said(written) == said(Draft(intent, written.shared))


@given(request=REQUESTS, other=REQUESTS, first=words(), second=words())
def test_another_request_is_filled_in_nowhere(
    request: dict[str, Any], other: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Each part of it alone makes another one."""
    for _ in range(2):
        draft(intent_of(request, first))
    for name, value in other.items():
        intent = intent_of({**request, name: value}, second)
        written = draft(intent)
        assert said(written) == said(Draft(intent, written.shared)), name


def test_a_request_that_says_a_mark_is_filled_in_nowhere() -> None:
    """It would have to know it; then its own words would be taken for a hole."""
    for name in ("session", "purpose", "requested_by", "working_directory"):
        request = {**EMPTY, name: f"about {mark(0)}"}
        for execution_id in (str(uuid.uuid4()), str(uuid.uuid4()), mark(0)):
            words = {**EXAMPLE, "execution_id": execution_id}
            intent = intent_of(request, words)
            written = draft(intent)
            assert said(written) == said(Draft(intent, written.shared)), name


def test_another_judgement_is_filled_in_nowhere() -> None:
    intent = make_intent()
    for _ in range(3):
        draft(intent)
    assert intent.tool
    other = replace(intent, tool=replace(intent.tool, version="9.9.9"))
    assert json.loads(draft(other).opening())["predicate"]["tool"]["version"] == "9.9.9"


def test_a_form_that_does_not_give_back_what_was_written_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intent = make_intent(session=str(uuid.uuid4()))
    draft(intent)
    monkeypatch.setattr(Form, "filled", lambda *_: b"{}")
    assert type(draft(intent)) is Draft
    monkeypatch.undo()
    assert type(draft(intent)) is not Draft


def test_requests_that_came_are_not_kept_for_ever() -> None:
    for number in range(2 * drafts._REQUESTS):
        intent = make_intent(session=f"ses-{number}")
        for _ in range(2):
            draft(intent)
        assert len(drafts._requests._kept) <= drafts._REQUESTS


@pytest.mark.parametrize("name", ["argv", "purpose", "environment"])
def test_a_request_of_many_words_is_not_kept(name: str) -> None:
    long = "x" * drafts._CHARACTERS
    says = {"argv": ("true", long), "purpose": long, "environment": {long: ""}}
    intent = intent_of({**EMPTY, name: says[name]}, EXAMPLE)
    before = len(drafts._requests._kept)
    assert type(draft(intent)) is type(draft(intent)) is Draft
    assert len(drafts._requests._kept) == before


def test_words_are_plain_only_in_the_shape_of_our_own() -> None:
    one = str(uuid.uuid4())
    digest, moment = "a" * 64, "2031-04-05T06:07:08.000Z"
    assert plain((one, digest, moment), shape(1, 1, 1)) == [
        *(one.encode(), digest.encode(), moment.encode())
    ]
    for other in (one.upper(), one[:-1], f"{one}0", "-" * 36, f"{one[:-1]}\n", f"{one[:-1]}é", ""):
        assert plain((other, digest, moment), shape(1, 1, 1)) is None, other
    assert plain((one, f"{digest[:-1]}\n{moment}"), shape(1, 1, 1)) is None


def test_a_form_fills_what_looks_like_a_hole_nowhere_else() -> None:
    text = f'{{"100%":"%b {mark(1)}","n":{marked_number(2)},"again":"{mark(1)}"}}'
    form = Form(text.encode(), [mark(1), str(marked_number(2))])
    assert form.filled([b"a", b"7"]) == b'{"100%":"%b a","n":7,"again":"a"}'


def test_executions_that_repeat_another_are_sound(house: House) -> None:
    policy = make_policy()
    plan = make_plan(make_contract(), policy)
    for _ in range(4):
        intent = make_intent(policy=policy, plan=plan, started_at=datetime.now(UTC))
        opened = house.ledger.write_ahead(intent)
        house.ledger.seal(make_facts(intent, opened=opened), None)
    assert type(opened.draft) is drafts._Filled
    assert [found for found in house.verifier.verify_all() if not found.passed] == []
