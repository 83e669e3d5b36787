"""Digests are the same for the same value: in any key order, process, hash seed, place and year."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pure_house import PureHouse, wrapped

from actum.contract.canonical import NotCanonical, sha256_bytes
from actum.contract.outcome import ActionStatus
from actum.executors import child_frames
from actum.executors.model import Declaration, Limits
from actum.executors.pool import End, Reply
from actum.executors.reasons import Reason
from actum.executors.runs import interpret
from actum.executors.shape import Snapshot, TooDeep, strict_loads

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(list(value))}
    return [_turned(item) for item in value] if isinstance(value, list) else value


@pytest.mark.req("001-63")
@given(json_values)
def test_key_order_does_not_matter(value: Any) -> None:
    assert Snapshot.of(value).digest == Snapshot.of(_turned(value)).digest


@pytest.mark.req("001-63")
@given(json_values)
def test_a_value_that_travelled_through_json_keeps_its_digest(value: Any) -> None:
    snapshot = Snapshot.of(value)
    assert Snapshot.of(snapshot.value).digest == snapshot.digest
    assert snapshot.digest == sha256_bytes(snapshot.encoded)


GOLDEN = {
    "{}": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    "null": "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
}


@pytest.mark.req("001-63")
@pytest.mark.parametrize("text", GOLDEN)
def test_published_values(text: str) -> None:
    assert Snapshot.of(json.loads(text)).digest == GOLDEN[text]


@pytest.mark.req("001-63")
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (0.1 + 0.2, "0.30000000000000004"),
        (5e-324, "5e-324"),
        (1e-7, "1e-7"),
        (2**53 - 1, "9007199254740991"),
        (-(2**53) + 1, "-9007199254740991"),
        (True, "true"),
        ("é", '"é"'),
        ("e\u0301", '"e\u0301"'),  # not normalised: other characters, other digest
        ("\u2028\x7f", '"\u2028\x7f"'),
        ('\n\x1f"\\/', '"\\n\\u001f\\"\\\\/"'),
        ({"\U0001f600": 1, "\uffff": 2}, '{"\U0001f600":1,"\uffff":2}'),  # UTF-16 order
        ({"b": 1, "a": 2, "B": 3}, '{"B":3,"a":2,"b":1}'),
    ],
)
def test_numbers_and_texts_at_the_edges(value: Any, encoded: str) -> None:
    assert Snapshot.of(value).encoded.decode() == encoded


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {1}, b"", 2**53, "\udc00", {None: 1}, object()]
)
def test_what_has_no_exact_form_has_no_digest(value: Any) -> None:
    with pytest.raises(NotCanonical):
        Snapshot.of({"value": value})


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b"NaN", b"-Infinity", b"{", b"\xff", b"1 2"])
def test_json_of_unknown_origin_is_read_strictly(text: bytes) -> None:
    with pytest.raises(ValueError):
        strict_loads(text)


def test_json_that_nests_without_end_is_refused_and_does_not_crash() -> None:
    with pytest.raises(TooDeep):
        strict_loads(b"[" * 100_000)


PROGRAM = """
import sys, tempfile
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from pure_house import PureHouse
with PureHouse(Path(tempfile.mkdtemp())) as house:
    for payload in ({"text": "Stra\\u00dfe"}, {"operation": "count", "text": "a b"}):
        result = house.act("process", payload)
        print(result.status, result.input_digest, result.output_digest)
"""


@pytest.mark.req("001-18", "001-24", "001-25", "001-63")
def test_other_process_environment_seed_zone_and_folder_same_digests(tmp_path: Any) -> None:
    helper = next(path for path in sys.path if path.endswith("security/executors"))
    said = set()
    for seed, zone, language, folder in (
        ("0", "UTC", "C", "/"),
        ("1", "Asia/Tokyo", "C.UTF-8", str(tmp_path)),
        ("99", "America/New_York", "POSIX", "/tmp"),
    ):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, helper],
            env={"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": language, "CANARY": seed},
            cwd=folder,
            capture_output=True,
            check=True,
        )
        said.add(ended.stdout)
    assert len(said) == 1
    assert said.pop().count(b"SUCCESS") == 2


@pytest.mark.req("001-18", "001-19")
@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1), json_values, max_size=4))
def test_the_same_input_gives_the_same_output_or_none(house: PureHouse, value: Any) -> None:
    payload = {"value": value or None, "steps": []}
    first = house.act("json_transform", payload)
    # A random key can be called TOKEN; the output then holds what counts as a secret.
    assume(Reason.SECRET_IN_OUTPUT not in first.reason_codes)
    second = house.act("json_transform", _turned(payload))
    assert (first.status, first.input_digest, first.output_digest) == (
        second.status,
        second.input_digest,
        second.output_digest,
    )
    assert (first.output_digest is None) == (not value)


@pytest.mark.req("001-18")
def test_an_executor_sees_the_keys_in_one_order_only(own_house: PureHouse) -> None:
    """It returns the order itself, which no digest hides."""
    body = "def execute(req):\n    return [list(req.payload), list(req.payload['in'])]\n"
    own_house.put("ordered", wrapped("ordered", body))
    own_house.reopen()
    payloads = ({"z": 1, "in": {"b": 1, "a": 2}, "a": 2}, {"a": 2, "in": {"a": 2, "b": 1}, "z": 1})
    results = [own_house.act("ordered", payload) for payload in payloads]
    assert [own_house.plane.value(each) for each in results] == [[["a", "in", "z"], ["a", "b"]]] * 2
    assert results[0].output_digest == results[1].output_digest


@pytest.mark.req("001-63")
def test_a_number_too_large_for_an_exact_integer_stays_the_float_it_was(house: PureHouse) -> None:
    result = house.act("json_transform", {"value": {"n": 1e16, "m": 2**53 - 1}, "steps": []})
    assert house.plane.value(result) == {"n": 1e16, "m": 2**53 - 1}


DECLARED = Declaration(
    executor_id="x",
    version="1.0.0",
    capabilities=(),
    limits=Limits(timeout_ms=1, max_payload_bytes=50, max_depth=3, max_list_items=3),
)


@pytest.mark.req("001-48", "001-49")
@given(
    st.sampled_from(End),
    st.integers(0, 255),
    st.binary() | json_values.map(lambda v: json.dumps(v).encode()),
)
def test_whatever_a_child_says_has_exactly_one_legal_meaning(
    end: End, kind: int, body: bytes
) -> None:
    ran = interpret(Reply(end, kind, body), DECLARED)
    assert (ran.status is ActionStatus.SUCCESS) == (ran.reason is None)
    assert ran.status is not ActionStatus.PENDING
    if ran.output is not None:
        assert ran.status is ActionStatus.SUCCESS
        assert not ran.output.exceeds(DECLARED.limits)
        assert end is End.REPLIED and kind == child_frames.VALUE
