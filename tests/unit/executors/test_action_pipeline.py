"""One action from request to result: checks in order, exact limits, digests, records."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pure_house import LIMITS, PureHouse, wrapped

from actum.contract.canonical import canonical, sha256_json
from actum.contract.outcome import ActionStatus
from actum.errors import ContractInvalid, Refused
from actum.evidence.verify.home import verify_home
from actum.executors.model import ActionRequest, ActionResult, Limits, Version
from actum.value import FrozenError, replace

SMALL = Limits(timeout_ms=10_000, max_payload_bytes=100, max_depth=3, max_list_items=4)
LARGE_OUTPUT = Limits(timeout_ms=10_000, max_payload_bytes=60, max_depth=3, max_list_items=4)
BUILT = "def execute(req):\n    return eval(req.payload['make'])\n"
SEEN = """
def execute(req):
    return [type(req).__name__, req.action, req.payload, req.trace_id, req.ts_utc.isoformat()]
"""


@pytest.fixture(scope="module")
def filled(house: PureHouse) -> PureHouse:
    house.put("echo", wrapped("echo", "def execute(req):\n    return req.payload\n"))
    small = wrapped("small", "def execute(req):\n    return None\n", SMALL)
    house.put("small", small, SMALL)
    house.put("built", wrapped("built", BUILT, LARGE_OUTPUT), LARGE_OUTPUT)
    house.put("seen", wrapped("seen", SEEN))
    house.put("fails", wrapped("fails", "def execute(req):\n    return 1 / 0\n"))
    house.put("part", wrapped("part", "def execute(req):\n    return req.payload['value']\n"))
    house.put("none", wrapped("none", "def execute(req):\n    pass\n"))
    house.reopen()
    return house


# --- the request


@pytest.mark.req("001-15")
def test_execute_receives_the_canonical_request_and_not_a_mapping(filled: PureHouse) -> None:
    request = ActionRequest(
        action="seen",
        payload={"b": 1, "a": [1.0]},
        trace_id=str(uuid.uuid4()),
        ts_utc=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    result = filled.plane.act(request)
    assert filled.plane.value(result) == [
        "ActionRequest",
        "seen",
        {"a": [1], "b": 1},
        request.trace_id,
        "2026-01-02T03:04:05+00:00",
    ]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"payload": {}}, "action"),
        ({"action": ""}, "action"),
        ({"action": 7}, "action"),
        ({"action": "noop", "payload": [1]}, "payload"),
        ({"action": "noop", "trace_id": "not-a-uuid"}, "trace_id"),
        ({"action": "noop", "ts_utc": "yesterday"}, "ts_utc"),
        ({"action": "noop", "ts_utc": "2026-01-01T00:00:00"}, "ts_utc"),
        ({"action": "noop", "ts_utc": "2026-01-01T00:00:00+02:00"}, "ts_utc"),
        ({"action": "noop", "admin": True}, "admin"),
        ([], ""),
    ],
)
def test_a_malformed_request_raises_names_the_field_and_is_on_record(
    filled: PureHouse, document: Any, field: str
) -> None:
    before = filled.database.rows("SELECT count(*) FROM audit")[0][0]
    with pytest.raises(ContractInvalid) as caught:
        filled.plane.act(document)
    assert [problem.field for problem in caught.value.problems] == [field]
    ((record,),) = filled.database.rows("SELECT record FROM audit WHERE seq > ?", (before,))
    assert json.loads(record)["decision"] == "DENY"


def test_a_request_cannot_be_changed_after_it_was_made() -> None:
    request = ActionRequest(action="noop")
    with pytest.raises(FrozenError):
        request.action = "other"  # type: ignore[misc]
    with pytest.raises(ContractInvalid):
        ActionRequest(action="noop", ts_utc=datetime.now(timezone(timedelta(hours=1))))


@pytest.mark.req("001-41")
def test_a_payload_changed_during_the_call_changes_nothing(filled: PureHouse) -> None:
    payload: dict[str, Any] = {"n": 0, "list": [1]}
    stop = threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            payload["n"] += 1

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for _ in range(10):
            result = filled.act("echo", payload)
            assert result.status is ActionStatus.SUCCESS
            assert result.input_digest == result.output_digest
    finally:
        stop.set()
        meddler.join()


# --- limits


def _padded(size: int) -> dict[str, str]:
    empty = len(canonical({"p": ""}))
    return {"p": "x" * (size - empty)}


@pytest.mark.req("001-11", "001-46", "001-47")
def test_a_payload_of_exactly_its_bytes_passes_and_one_more_is_blocked(filled: PureHouse) -> None:
    assert filled.act("small", _padded(100)).status is ActionStatus.SUCCESS
    over = filled.act("small", _padded(101))
    assert (over.status, over.reason_codes) == (ActionStatus.BLOCKED, ("LIMIT_EXCEEDED",))
    # Bytes, not characters: é has two.
    wide = {"p": "é" * 46 + "x"}
    assert len(canonical(wide)) == 101
    assert filled.act("small", wide).reason_codes == ("LIMIT_EXCEEDED",)


@pytest.mark.req("001-12", "001-46")
def test_a_payload_of_exactly_its_depth_passes_and_one_more_is_blocked(filled: PureHouse) -> None:
    assert filled.act("small", {"a": {"b": {"c": 1}}}).status is ActionStatus.SUCCESS
    assert filled.act("small", {"a": [{"c": 1}]}).status is ActionStatus.SUCCESS
    for deep in ({"a": {"b": {"c": {}}}}, {"a": [[[]]]}):
        assert filled.act("small", deep).reason_codes == ("LIMIT_EXCEEDED",)


@pytest.mark.req("001-13", "001-46")
def test_a_list_of_exactly_its_items_passes_and_one_more_is_blocked(filled: PureHouse) -> None:
    assert filled.act("small", {"a": [1, 2, 3, 4]}).status is ActionStatus.SUCCESS
    assert filled.act("small", {"a": [1, 2, 3, 4, 5]}).reason_codes == ("LIMIT_EXCEEDED",)
    assert filled.act("small", {"a": {"b": [0] * 5}}).reason_codes == ("LIMIT_EXCEEDED",)


@pytest.mark.req("001-47")
def test_the_limits_are_the_executors_own(filled: PureHouse) -> None:
    payload = _padded(101)
    assert filled.act("small", payload).reason_codes == ("LIMIT_EXCEEDED",)
    assert filled.act("echo", payload).status is ActionStatus.SUCCESS


@pytest.mark.req("001-46", "001-47")
@pytest.mark.parametrize(
    ("make", "fits"),
    [
        ("'x' * 58", True),
        ("'x' * 59", False),
        ("[[[1]]]", True),
        ("[[[[1]]]]", False),
        ("[1, 2, 3, 4]", True),
        ("[1, 2, 3, 4, 5]", False),
        ("'é' * 29", True),
        ("'é' * 30", False),
        ("'\\n' * 29", True),
        ("'\\n' * 30", False),
    ],
)
def test_the_same_limits_hold_for_the_output(filled: PureHouse, make: str, fits: bool) -> None:
    result = filled.act("built", {"make": make})
    expected = (ActionStatus.SUCCESS, ()) if fits else (ActionStatus.BLOCKED, ("LIMIT_EXCEEDED",))
    assert (result.status, result.reason_codes) == expected


def test_a_payload_too_deep_to_be_encoded_is_blocked_and_not_a_crash(filled: PureHouse) -> None:
    deep: Any = []
    for _ in range(sys.getrecursionlimit() * 3):
        deep = [deep]
    result = filled.act("echo", {"a": deep})
    assert (result.reason_codes, result.input_digest) == (("LIMIT_EXCEEDED",), "")


NOT_JSON = [float("nan"), float("inf"), {1, 2}, b"x", object(), 2**53, {1: 2}, "\ud800", 1j]


@pytest.mark.parametrize("value", NOT_JSON, ids=lambda value: type(value).__name__)
def test_a_payload_that_is_not_json_is_blocked_without_a_digest(
    filled: PureHouse, value: Any
) -> None:
    result = filled.act("echo", {"value": value})
    assert (result.status, result.reason_codes, result.input_digest) == (
        ActionStatus.BLOCKED,
        ("NON_JSON_PAYLOAD",),
        "",
    )


def test_a_payload_that_contains_itself_is_blocked(filled: PureHouse) -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    assert filled.act("echo", loop).reason_codes == ("NON_JSON_PAYLOAD",)


# --- time


@pytest.mark.req("001-10", "001-45", "001-47", "001-57")
def test_each_executor_has_the_time_that_it_declares(own_house: PureHouse) -> None:
    """The same endless code, with two limits: the deadline is the executor's own."""
    endless = (
        "def execute(req):\n    while req.payload.get('endless'):\n        pass\n    return 1\n"
    )
    times = {"hurried": 2_000, "patient": 5_000}
    for name, timeout_ms in times.items():
        limits = replace(LIMITS, timeout_ms=timeout_ms)
        own_house.put(name, wrapped(name, endless, limits), limits)
    own_house.reopen()
    for name, timeout_ms in times.items():
        assert own_house.act(name).status is ActionStatus.SUCCESS
        result = own_house.act(name, {"endless": True})
        assert (result.status, result.reason_codes) == (ActionStatus.BLOCKED, ("EXECUTOR_TIMEOUT",))
        # Twice the time would be too late.
        assert timeout_ms <= own_house.records(result)[-1]["duration_ms"] < 2 * timeout_ms


# --- results


@pytest.mark.req("001-16", "001-34")
def test_an_output_is_known_by_its_digest_and_found_in_the_session_only(filled: PureHouse) -> None:
    result = filled.act("echo", {"a": 1})
    assert result.output_digest == result.input_digest
    assert filled.plane.value(result) == {"a": 1}
    gone = replace(result, output_digest="0" * 64)
    with pytest.raises(Refused) as caught:
        filled.plane.value(gone)
    assert caught.value.code == "VALUE_GONE"


@pytest.mark.req("001-16")
@pytest.mark.parametrize("value", ["é", 7, -0.5, 1e300, True, [], {}, [1, [None, {"a": 0.25}]]])
def test_every_kind_of_json_is_an_output(filled: PureHouse, value: object) -> None:
    result = filled.act("part", {"value": value})
    assert (result.status, result.reason_codes) == (ActionStatus.SUCCESS, ())
    assert result.output_digest == sha256_json(value)
    assert filled.plane.value(result) == value


@pytest.mark.req("001-17", "001-61")
def test_none_is_success_without_a_digest(filled: PureHouse) -> None:
    result = filled.act("none", {"a": 1})
    assert (result.status, result.reason_codes, result.output_digest) == (
        ActionStatus.SUCCESS,
        (),
        None,
    )
    assert filled.records(result)[-1]["output_digest"] is None
    assert filled.plane.value(result) is None


@pytest.mark.req("001-33", "001-49")
def test_every_end_is_an_action_result_of_one_shape(filled: PureHouse) -> None:
    results = [
        filled.act("echo", {"a": 1}),
        filled.act("none"),
        filled.act("fails"),
        filled.act("unknown"),
        filled.act("echo", {"a": {1}}),
        filled.act("small", _padded(101)),
    ]
    keys = {
        *("action", "executor_id", "executor_version", "status", "reason_codes"),
        *("input_digest", "output_digest", "trace_id", "ts_utc"),
    }
    for result in results:
        assert type(result) is ActionResult
        assert set(result.document()) == keys
        assert bool(result.reason_codes) == (result.status is not ActionStatus.SUCCESS)


def test_a_result_that_did_not_succeed_must_say_why(filled: PureHouse) -> None:
    result = filled.act("echo")
    with pytest.raises(ValueError, match="reason_codes"):
        replace(result, status=ActionStatus.FAILED, reason_codes=())


# --- records


OUTCOMES = {
    "SUCCESS": ("echo", {"a": 1}),
    "FAILED": ("fails", {}),
    "BLOCKED": ("small", _padded(101)),
}
FIELDS = {
    "001-52": "event_type",
    "001-53": "executor_id",
    "001-54": "executor_version",
    "001-55": "status",
    "001-56": "trace_id",
    "001-57": "duration_ms",
    "001-58": "input_digest",
    "001-59": "output_digest",
}


@pytest.mark.req("001-51", *FIELDS)
@pytest.mark.parametrize("status", OUTCOMES)
def test_every_outcome_has_an_action_audit_with_all_eight_fields(
    filled: PureHouse, status: str
) -> None:
    result = filled.act(*OUTCOMES[status])
    assert result.status.value == status
    records = [each for each in filled.records(result) if each["event_type"] == "action_audit"]
    final = records[-1]
    assert {name: final[name] for name in FIELDS.values()} == {
        "event_type": "action_audit",
        "executor_id": result.executor_id,
        "executor_version": "1.0.0",
        "status": status,
        "trace_id": result.trace_id,
        "duration_ms": final["duration_ms"],
        "input_digest": result.input_digest,
        "output_digest": result.output_digest,
    }
    assert isinstance(final["duration_ms"], int) and final["duration_ms"] >= 0
    assert final["reason_codes"] == list(result.reason_codes)
    for name in FIELDS.values():
        assert all(name in each for each in records)


@pytest.mark.req("001-51")
def test_a_decision_and_a_pending_record_stand_before_the_final_one(filled: PureHouse) -> None:
    ran = [(each["event_type"], each.get("status")) for each in filled.records(filled.act("echo"))]
    assert ran == [
        ("decision_audit", None),
        ("action_audit", "PENDING"),
        ("action_audit", "SUCCESS"),
    ]
    refused = filled.records(filled.act("unknown"))
    assert [(each["event_type"], each.get("decision")) for each in refused] == [
        ("decision_audit", "DENY"),
        ("action_audit", None),
    ]
    assert refused[0]["reason_codes"] == ["ACTION_UNKNOWN"]
    assert len(refused[0]["profile_hash"]) == 64
    assert refused[0]["matched_rules"] == ["action_is_known"]


@pytest.mark.req("001-34")
def test_a_text_that_is_no_identifier_gets_into_a_record_only_as_its_digest(
    filled: PureHouse,
) -> None:
    result = filled.act("drop table; -- my password is hunter2")
    assert all("hunter2" not in json.dumps(each) for each in filled.records(result))
    assert filled.records(result)[0]["action"].startswith("sha256:")


def test_the_log_verifies_after_all_of_this(filled: PureHouse) -> None:
    keyring = filled.keyring
    findings = verify_home(filled.home, keyring.signer, keyring.trusted)
    assert [each for each in findings if not each.passed] == []


# --- versions and capabilities


def test_versions_are_compared_as_numbers() -> None:
    def parsed(text: str) -> Version:
        version = Version.parse(text)
        assert version is not None
        return version

    assert parsed("1.10.0") > parsed("1.9.0") > parsed("1.9.0".replace("9", "8"))
    assert parsed("2.0.0") >= parsed("1.99.99")
    assert str(parsed("10.20.30")) == "10.20.30"
    for text in ("v1", "1.0", "1.0.0-rc1", "1.0.0+b", "01.0.0", "1.0.0\n", "1.0.0.0", "", 1, None):
        assert Version.parse(text) is None


ACTIONS = """
[actions.needs_new]
executor = "echo"
action_version = "1.0.0"
min_executor_version = "1.0.1"

[actions.needs_old]
executor = "echo"
action_version = "1.0.0"
min_executor_version = "0.9.0"

[actions.ten_is_enough]
executor = "of_version_ten"
action_version = "1.0.0"
min_executor_version = "1.9.0"

[actions.nine_is_too_old]
executor = "of_version_nine"
action_version = "1.0.0"
min_executor_version = "1.10.0"

[actions.needs_more]
executor = "echo"
action_version = "1.0.0"
required_capabilities = ["any", "ROOT"]

[actions.needs_same]
executor = "echo"
action_version = "1.0.0"
required_capabilities = [" any "]

[actions.no_version]
executor = "echo"

[actions.bad_version]
executor = "echo"
action_version = "v1"

[actions.bad_minimum]
executor = "echo"
action_version = "1.0.0"
min_executor_version = "latest"

[actions.nobody]
executor = "nobody"
action_version = "1.0.0"

[profiles.narrow]
allow = ["echo"]
"""


@pytest.fixture(scope="module")
def routed(filled: PureHouse) -> PureHouse:
    for name, version in (("of_version_nine", "1.9.0"), ("of_version_ten", "1.10.0")):
        source = wrapped(name, "def execute(req):\n    return 1\n", version=version)
        filled.put(name, source, version=version)
    (filled.root / "executors" / "actions.toml").write_text(ACTIONS)
    filled.reopen()
    return filled


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        pytest.param("needs_new", "EXECUTOR_VERSION_INCOMPATIBLE", marks=pytest.mark.req("001-31")),
        pytest.param("needs_old", "", marks=pytest.mark.req("001-31")),
        pytest.param("ten_is_enough", "", marks=pytest.mark.req("001-31")),
        pytest.param(
            "nine_is_too_old", "EXECUTOR_VERSION_INCOMPATIBLE", marks=pytest.mark.req("001-31")
        ),
        pytest.param(
            "bad_minimum", "EXECUTOR_VERSION_INCOMPATIBLE", marks=pytest.mark.req("001-31")
        ),
        pytest.param("needs_more", "EXECUTOR_CAPABILITY_MISSING", marks=pytest.mark.req("001-8")),
        pytest.param("needs_same", "", marks=pytest.mark.req("001-8")),
        ("no_version", "ACTION_VERSION_MISSING"),
        ("bad_version", "ACTION_VERSION_INVALID"),
        ("nobody", "EXECUTOR_NOT_FOUND"),
        ("not_there", "ACTION_UNKNOWN"),
    ],
)
def test_versions_and_capabilities_are_judged_outside_the_executor(
    routed: PureHouse, action: str, reason: str
) -> None:
    result = routed.act(action, {"a": 1})
    assert result.reason_codes == ((reason,) if reason else ())
    assert result.status is (ActionStatus.BLOCKED if reason else ActionStatus.SUCCESS)


def test_a_profile_narrows_what_may_be_asked(routed: PureHouse) -> None:
    assert routed.plane.act({"action": "echo"}, profile="narrow").status is ActionStatus.SUCCESS
    for profile in ("narrow", "unknown"):
        denied = routed.plane.act({"action": "noop"}, profile=profile)
        assert denied.reason_codes == ("PROFILE_ACTION_MISMATCH",)


# --- attributes


@pytest.mark.req("001-2")
def test_an_executor_that_changed_its_attributes_is_refused_from_then_on(
    own_house: PureHouse,
) -> None:
    body = """
def execute(req):
    if req.payload.get("grow"):
        ME().limits["max_payload_bytes"] = 10**9
    return 1
"""
    own_house.put("grows", wrapped("grows", "ME = None\n" + body))
    own_house.reopen()
    assert own_house.act("grows").status is ActionStatus.SUCCESS
    assert own_house.act("grows", {"grow": 1}).reason_codes == ("EXECUTOR_CHANGED",)
    assert own_house.act("grows").reason_codes == ("EXECUTOR_CHANGED",)
    declared = own_house.plane.registry.executors["grows"].declared
    assert declared.limits == LIMITS
    with pytest.raises(FrozenError):
        declared.version = "2.0.0"  # type: ignore[misc]
    with pytest.raises(FrozenError):
        declared.limits.timeout_ms = 1  # type: ignore[misc]


@pytest.mark.req("001-2", "001-65")
def test_an_executor_that_declares_something_else_than_was_reviewed_does_not_run(
    own_house: PureHouse,
) -> None:
    generous = replace(LIMITS, timeout_ms=600_000)
    own_house.put("lies", wrapped("lies", "def execute(req):\n    return 1\n", generous))
    own_house.reopen()
    assert own_house.act("lies").reason_codes == ("EXECUTOR_CHANGED",)


@pytest.mark.req("001-64")
def test_additional_attributes_change_nothing(own_house: PureHouse) -> None:
    plain = wrapped("plain", "def execute(req):\n    return ME().version\n", LIMITS)
    own_house.put("plain", plain)
    more = wrapped("more", "def execute(req):\n    return ME().version\n", LIMITS)
    own_house.put("more", more.replace(b"    version", b"    owner = {'a': [1]}\n    version"))
    own_house.reopen()
    first, second = own_house.act("plain"), own_house.act("more")
    assert (first.status, first.output_digest) == (second.status, second.output_digest)


def test_payload_and_own_declaration_are_all_the_configuration_there_is(
    own_house: PureHouse,
) -> None:
    body = """
def execute(req):
    me = ME()
    return [me.version, me.capabilities, req.payload.get("scale", 1)]
"""
    own_house.put("configured", wrapped("configured", "ME = None\n" + body))
    own_house.reopen()
    assert own_house.plane.value(own_house.act("configured", {"scale": 3})) == ["1.0.0", ["ANY"], 3]


# --- many at once


def test_calls_from_many_threads_get_their_own_answers(filled: PureHouse) -> None:
    answers: dict[int, Any] = {}

    def call(number: int) -> None:
        result = filled.act("echo", {"n": number})
        answers[number] = (result.status, filled.plane.value(result))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: (ActionStatus.SUCCESS, {"n": number}) for number in range(24)}
