from __future__ import annotations

import io
import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.canonical import (
    NotCanonical,
    blake3_bytes,
    canonical,
    sha256_bytes,
    sha256_file,
    sha256_json,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_the_encoding_is_rfc_8785(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(json_values)
def test_the_encoding_means_the_same_value(value):
    # RFC 8785 writes 4e16 without an exponent; a reader that knows only doubles is meant.
    def double(digits):
        return int(digits) if abs(int(digits)) < 2**53 else float(digits)

    assert json.loads(canonical(value), parse_int=double) == value


@given(st.dictionaries(st.text(), json_values), st.randoms())
def test_the_order_of_keys_does_not_matter(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert canonical(dict(items)) == canonical(value)


def test_keys_are_ordered_by_utf_16_code_units_and_numbers_written_as_ecmascript_does():
    assert canonical({"\ufb33": 1, "\U0001f600": 2, "a": 3}) == (
        '{"a":3,"\U0001f600":2,"\ufb33":1}'.encode()
    )
    assert canonical([1.0, 1e21, 0.1, -0.0]) == b"[1,1e+21,0.1,0]"


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), "$"),
        ([float("inf")], "$[0]"),
        ({"a": float("-inf")}, "$.a"),
        (2**53, "$"),
        ([0, -(2**53)], "$[1]"),
        ({"a": [{"b": 10**30}]}, "$.a[0].b"),
        ("\ud800", "$"),
        (["a", "é\udfff"], "$[1]"),
        ({"\ud800": 1}, "$"),
        ({1: 2}, "$"),
        ({None: 2}, "$"),
        (b"bytes", "$"),
        ([{1}], "$[0]"),
        (object(), "$"),
        ([0.5, 2**53], "$[1]"),
        ({"é": 1.5, "z": "\udc00"}, "$.z"),
    ],
)
def test_what_json_cannot_say_exactly_is_refused_with_its_place(value, where):
    with pytest.raises(NotCanonical) as caught:
        canonical(value)
    assert str(caught.value).startswith(f"{where}:")
    assert caught.value.code == "NON_JSON_PAYLOAD"


def test_the_largest_exact_integers_are_taken():
    assert canonical([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


FULL_PROFILE = {
    "validationPolicyVersion": 1,
    "randomnessSeed": "forbidden:no-random-branching",
    "plannerPolicyVersion": 1,
    "normalizedExecutionConfig": {
        "schemaVersion": 1,
        "profile": "full",
        "plannerTimeoutMs": 120000,
        "maxTotalDiffBytes": 400000,
        "maxRuntimeCorrectionAttempts": 5,
        "maxHeavyCorrectionAttempts": 3,
        "maxFilesPerStep": 15,
        "maxFileBytes": 1500000,
        "lightValidationMode": "enforce",
        "heavyValidationMode": "enforce",
        "correctionPolicyMode": "enforce",
        "correctionConvergenceMode": "enforce",
        "allowEnvMutation": False,
    },
    "executionContractSchemaVersion": 1,
    "determinismPolicyVersion": 1,
    "correctionRecipeVersion": 1,
}


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        ({}, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (None, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        (FULL_PROFILE, "eaa65ae6e4c8366fb3b20b76295914499fbe5f03f5e0c9a1b294d015badc7868"),
    ],
    ids=["empty", "null", "full profile"],
)
def test_golden_digests(value, digest):
    assert sha256_json(value) == digest


def test_the_full_profile_has_the_recorded_length():
    assert len(canonical(FULL_PROFILE)) == 581


def test_digests_of_bytes_and_of_files_agree():
    data = bytes(range(256)) * 9000
    assert sha256_file(io.BytesIO(data)) == sha256_bytes(data)
    assert sha256_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert blake3_bytes(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
