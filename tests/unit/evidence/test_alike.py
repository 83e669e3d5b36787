"""What is said of an end that came before says, to the byte, what is said of any other."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.capture.model import DeadlinePassed, Denial, Exited, NotCollected
from actum.capture.streams import SILENCE
from actum.contract.encoder import hasten
from actum.contract.model import ExpectedOutputs
from actum.contract.outcome import Outcome, TraceOutcome
from actum.evidence import alike, sealing
from actum.evidence.checklists import Verdict
from actum.evidence.draft import draft
from actum.evidence.facts import ExecutionFacts, Intent, Opened
from actum.evidence.record import Redact
from actum.evidence.sealing import Told
from actum.evidence.trace import LIFECYCLE, EventType, Recorded, TraceEvent, rfc3339
from actum.value import fields, replace

from .factories import (
    CHECKS,
    ENFORCED,
    House,
    bad,
    make_capture,
    make_contract,
    make_file,
    make_plan,
    make_policy,
    make_stream,
)

POLICY = make_policy()
PLAN = make_plan(make_contract(), POLICY)
SILENT = make_capture(stdout=SILENCE, stderr=SILENCE)
DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64)
MOMENT = st.datetimes(timezones=st.just(UTC))
NUMBER = st.integers(min_value=0, max_value=10**9)
ENDS = st.fixed_dictionaries(
    {
        "started_at": MOMENT,
        "ended_at": MOMENT,
        "duration_ms": NUMBER,
        "output_digest": DIGEST,
        "pending_seq": NUMBER,
        "result_sha256": DIGEST,
        "steps": st.lists(st.tuples(MOMENT, NUMBER), min_size=4, max_size=4),
    }
)
EXAMPLE: dict[str, Any] = {
    "started_at": datetime(2031, 4, 5, 6, 7, 8, tzinfo=UTC),
    "ended_at": datetime(2031, 4, 5, 6, 7, 9, tzinfo=UTC),
    "duration_ms": 3,
    "output_digest": "a" * 64,
    "pending_seq": 8,
    "result_sha256": "b" * 64,
    "steps": [(datetime(2031, 4, 5, 6, 7, 8, number, tzinfo=UTC), number) for number in range(4)],
}


def facts_of(end: dict[str, Any], **changes: Any) -> ExecutionFacts:
    """Another execution of one request, that ended as `end` and `changes` say."""
    contract = changes.pop("contract", None) or make_contract()
    trace_id = str(uuid.uuid4())
    data: tuple[dict[str, Any], ...] = (
        {"attempt": 1},
        {"limits": ("timeout_ms", "memory_mb")},
        {"stdout_bytes": 0, "stderr_bytes": 0, "files": 0, "not_collected": 0},
        {"ending": "Exited", "denials": 0},
    )
    events = tuple(
        Recorded(
            event=TraceEvent(
                event_type=kind,
                trace_id=trace_id,
                execution_id=contract.execution_id,
                attempt=1,
                tool_id="TL-003",
                runner_type="local",
                container_id=None,
                duration_ms=duration_ms,
                outcome=TraceOutcome.SUCCESS if kind is EventType.TOOL_RUN_END else None,
                data=each,
            ),
            ts=rfc3339(ts),
        )
        for kind, each, (ts, duration_ms) in zip(LIFECYCLE, data, end["steps"], strict=True)
    )
    values: dict[str, Any] = {
        "contract": contract,
        "contract_sha256": uuid.uuid4().hex * 2,
        "identity_sha256": "e" * 64,
        "trace_id": trace_id,
        "session": "ses-1",
        "input_digest": "f" * 64,
        "started_at": end["started_at"],
        "tool": PLAN.tool,
        "adapter": PLAN.adapter,
        "policy": POLICY,
        "checks": CHECKS,
        "proof": PLAN.proof,
        "plan": PLAN,
        "foreseen": ENFORCED,
        "outcome": Outcome.SUCCEEDED,
        "reason_codes": (),
        "ended_at": end["ended_at"],
        "duration_ms": end["duration_ms"],
        "output_digest": end["output_digest"],
        "opened": Opened(pending_seq=end["pending_seq"]),
        "capture": SILENT,
        "exit_code": 0,
        "events": events,
        "clearing": tuple,
    }
    return ExecutionFacts(**values | changes)


def intent_of(facts: ExecutionFacts) -> Intent:
    return Intent(**{field.name: getattr(facts, field.name) for field in fields(Intent)})


def both(
    facts: ExecutionFacts,
    result_sha256: str | None,
    stored: set[str] | None = None,
    redact: Redact = bytes,
) -> tuple[Told | None, Told]:
    begun = draft(intent_of(facts))
    if stored is None:
        stored = {file.blake3 for file in facts.capture.collected} if facts.capture else set()
    plainly = sealing.told(
        facts,
        (),
        begun=draft(facts),  # never from a form
        stored=stored,
        redact=redact,
        result_sha256=result_sha256,
    )
    return alike.told(facts, begun, result_sha256, stored, redact), plainly


def one(**changes: Any) -> tuple[Told | None, Told]:
    return both(facts_of(EXAMPLE, **changes), "c" * 64)


@pytest.fixture(autouse=True, params=["plain encoder", "fast encoder"])
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from actum.contract import encoder

    monkeypatch.setattr(encoder._encoder, "fast", None)
    if request.param == "fast encoder":
        hasten()


def learn() -> None:
    """So that an end as in `EXAMPLE` is a form, whatever was before."""
    for _ in range(4):
        filled, _ = one()
    assert filled is not None


@given(ends=st.lists(ENDS, min_size=1, max_size=3))
def test_an_end_that_came_before(ends: list[dict[str, Any]]) -> None:
    learn()
    for end in ends:
        filled, plainly = both(facts_of(end), end["result_sha256"])
        assert filled == plainly  # and not None, or nothing is shown here


CONTENT = st.binary(min_size=3, max_size=3)


@given(ends=st.lists(st.tuples(ENDS, CONTENT, CONTENT), min_size=3, max_size=4))
def test_an_end_that_left_files_of_the_same_names_and_sizes(
    ends: list[tuple[dict[str, Any], bytes, bytes]],
) -> None:
    learn()
    for _ in range(2):
        for end, one, two in ends:
            files = (make_file("a%b/é", one), make_file("out", two, "output_file"))
            facts = facts_of(end, capture=replace(SILENT, collected=files))
            filled, plainly = both(facts, end["result_sha256"])
            assert filled in (None, plainly)
    assert filled == plainly


SAID = st.one_of(
    st.sampled_from(
        [
            b"%b%s",
            b'"\\\n"',
            b"\xff\xfe\xfa\xfb",
            b"\xed\xa0\x80a",
            "é%é".encode()[:4],
            b"\0\x1f\x7f\r",
        ]
    ),
    st.binary(min_size=4, max_size=4),
)


@given(ends=st.lists(st.tuples(ENDS, SAID, SAID), min_size=3, max_size=4), loud=st.integers(1, 3))
def test_an_end_that_said_as_much(
    ends: list[tuple[dict[str, Any], bytes, bytes]], loud: int
) -> None:
    learn()
    for _ in range(2):
        for end, out, error in ends:
            capture = replace(
                SILENT,
                stdout=make_stream(out) if loud & 1 else SILENCE,
                stderr=make_stream(error) if loud & 2 else SILENCE,
            )
            filled, plainly = both(
                facts_of(end, capture=capture), end["result_sha256"], redact=_redacted
            )
            assert filled in (None, plainly)
    assert filled == plainly


def _redacted(text: bytes) -> bytes:
    return text.replace(b"%b", b'[a "secret"]')


def test_what_is_said_of_one_is_never_what_another_said() -> None:
    learn()
    for text in (b"one\n", b"two\n", b"six\n", b"ten\n", b"lone\n", b""):
        filled, plainly = one(capture=replace(SILENT, stdout=make_stream(text)))
        assert filled in (None, plainly)
        assert json.loads(plainly.record)["output"]["stdout"]["summary"] == text.decode()
    # The same words by the other stream, or cut off, are another end.
    long = make_stream(b"ten\n")
    for stream in (replace(long, total_bytes=5), replace(long, total_bytes=10**7), long):
        for _ in range(3):
            for capture in (replace(SILENT, stdout=stream), replace(SILENT, stderr=stream)):
                filled, plainly = one(capture=capture)
                assert filled in (None, plainly)
    assert filled == plainly


@pytest.mark.parametrize("wrong", [{"sha256": "a" * 64}, {"total_bytes": 3}], ids=str)
def test_a_stream_that_contradicts_itself_is_judged_each_time(wrong: dict[str, Any]) -> None:
    learn()
    sound = make_stream(b"text")
    for _ in range(4):
        filled, _ = one(capture=replace(SILENT, stdout=sound))
    assert filled is not None
    filled, plainly = one(capture=replace(SILENT, stdout=replace(sound, **wrong)))
    assert filled is None
    during = json.loads(plainly.record)["checklists"]["during_execution"]
    assert [line["item"] for line in during if line["verdict"] != Verdict.PASS] == [
        "Output streams captured"
    ]


def test_files_of_other_names_sizes_and_kinds_are_told_as_they_are() -> None:
    learn()
    known = [make_file("a", b"1")]
    others = [
        [make_file("b", b"1")],
        [make_file("x/a", b"1")],
        [make_file("a", b"12")],
        [make_file("a", b"1", "output_file")],
        [replace(known[0], name="c")],
        [replace(known[0], sha256="A" * 64)],
        [*known, make_file("b", b"1")],
        [make_file(str(number), b"1") for number in range(5)],
        [],
    ]
    for files in (known, known, known, known, *others):
        filled, plainly = one(capture=replace(SILENT, collected=tuple(files)))
        assert filled in (None, plainly)
    facts = facts_of(EXAMPLE, capture=replace(SILENT, collected=tuple(known)))
    assert both(facts, "c" * 64)[0] is not None
    lost, plainly = both(facts, "c" * 64, stored=set())
    assert lost is None
    assert b"not stored: a" in plainly.record


def test_every_other_end_is_told_as_it_was() -> None:
    """Each of these differs from what is known in one thing."""
    learn()
    events = facts_of(EXAMPLE).events
    silent = {"stdout": SILENCE, "stderr": SILENCE}
    captures = [
        make_capture(**silent, ending=Exited(1)),
        make_capture(**silent, ending=DeadlinePassed(15)),
        make_capture(**silent, duration_ms=13),
        make_capture(**silent, duration_ms=10**7),
        make_capture(**silent, enforcement=ENFORCED[:2]),
        make_capture(**silent, enforcement=tuple(replace(row, peak=3) for row in ENFORCED)),
        make_capture(**silent, collected=(make_file("out/a", b"a"),)),
        make_capture(**silent, denials=(Denial(kind="fork", target="x", time_ms=1),)),
        make_capture(
            **silent, not_collected=(NotCollected(path="a", kind="artifact", reason="missing"),)
        ),
        make_capture(stdout=make_stream(b"a"), stderr=SILENCE),
        make_capture(stdout=SILENCE, stderr=make_stream(b"a")),
    ]
    others: list[dict[str, Any]] = [{"capture": capture} for capture in captures]
    others += [
        {"exit_code": 1},
        {"exit_code": None},
        {"outcome": Outcome.TOOL_ERROR},
        {"outcome": Outcome.TOOL_ERROR, "reason_codes": ("TOOL_ERROR",)},
        {"output_digest": None},
        {"output_digest": "A" * 64},
        {"session": "ses-2"},
        {"attempt": 2},
        {"events": events[:3]},
        {"events": ()},
        {"contract": make_contract(outputs=ExpectedOutputs(exit_code=3))},
        {"contract": make_contract(execution_id='"')},
        {"opened": None},
        {"plan": None},
    ]
    for change in others:
        for _ in range(4):
            filled, plainly = one(**change)
            assert filled in (None, plainly), change
    filled, plainly = both(facts_of(EXAMPLE), None)
    assert filled in (None, plainly)


@pytest.mark.parametrize(
    "change",
    [
        {"event_type": EventType.DENIAL},
        {"attempt": 2},
        {"trace_id": "another"},
        {"tool_id": "TL-004"},
        {"runner_type": "other"},
        {"container_id": "box"},
        {"outcome": TraceOutcome.ERROR},
        {"data": {}},
        {"data": {"attempt": True}},
        {"data": {"attempt": 1.0}},
        {"data": {"attempt": 1, "more": None}},
        {"data": {"attempt": [1]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_event_that_says_something_else_is_told_as_it_is(change: dict[str, Any]) -> None:
    learn()
    facts = facts_of(EXAMPLE)
    first, *rest = facts.events
    for _ in range(2):
        other = replace(first, event=replace(first.event, **change))
        filled, plainly = both(replace(facts, events=(other, *rest)), "c" * 64)
        assert filled is None
        assert json.loads(plainly.events)[0] == json.loads(json.dumps(other.document()))


def test_data_that_changes_behind_our_back_is_told_as_it_is_by_then() -> None:
    enforcement = (*ENFORCED,)
    capture = replace(SILENT, enforcement=enforcement)
    data: dict[str, Any] = {"attempt": 1}

    def again() -> tuple[Told | None, Told]:
        facts = facts_of(EXAMPLE, capture=capture)
        first, *rest = facts.events
        changed = replace(first, event=replace(first.event, data=data))
        return both(replace(facts, events=(changed, *rest)), "c" * 64)

    for _ in range(4):
        filled, plainly = again()
    assert filled == plainly
    data["attempt"] = 2
    filled, plainly = again()
    assert filled is None
    assert json.loads(plainly.events)[0]["data"] == {"attempt": 2}


def test_a_form_that_does_not_give_back_what_was_written_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn()
    capture = replace(SILENT, enforcement=(*ENFORCED, ENFORCED[0]))
    one(capture=capture)
    with monkeypatch.context() as patch:
        patch.setattr(alike._Forms, "filled", lambda *_: Told(b"", b"", b"", b"", b""))
        begun = facts_of(EXAMPLE, capture=capture)
        filled, plainly = both(begun, "c" * 64)
        assert filled == plainly
    filled, plainly = one(capture=capture)
    assert filled is None


def test_ends_that_came_are_not_kept_for_ever() -> None:
    learn()
    for number in range(2 * alike._MOST):
        for _ in range(2):
            filled, plainly = one(capture=replace(SILENT, duration_ms=number))
            assert filled in (None, plainly)
        assert len(alike._kept) <= alike._MOST


def test_a_house_of_executions_that_repeat_is_sound(house: House) -> None:
    left: list[tuple[str, ...]] = [(), (), (), (), ("cgroup x: busy",)]
    last = ""
    for found in left:
        facts = facts_of(EXAMPLE, clearing=lambda found=found: found)
        opened = house.ledger.write_ahead(intent_of(facts))
        house.ledger.seal(replace(facts, opened=opened), b'{"outcome":"SUCCEEDED"}')
        last = facts.execution_id
    assert bad(house.verifier.verify_all()) == []
    (record,) = house.records.of_execution(last)
    assert record["checklists"]["post_execution"][-1]["detail"] == "left behind: cgroup x: busy"
    known = house.executions.get(last)
    assert known
    assert known.result == {"outcome": "SUCCEEDED"}
