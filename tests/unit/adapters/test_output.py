from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.factories import make_entry

from actum.adapters.output import OutputInvalid, apply_output_transforms, check_supported
from actum.contract.limits import STDOUT_BYTES
from actum.registry.model import Transform


def parsed(spec: str, stdout: bytes) -> Any:
    return apply_output_transforms((Transform(type="parse", spec=spec),), stdout)


@pytest.mark.req("000-134")
def test_json_lines_become_a_list_of_objects() -> None:
    adapter = make_entry().adapter
    stdout = '{"type":"begin"}\n{"text":"a\u2028b"}\n'.encode()
    assert apply_output_transforms(adapter.output_transforms, stdout) == [
        {"type": "begin"},
        {"text": "a\u2028b"},
    ]
    assert apply_output_transforms(adapter.output_transforms, b"") == []


@pytest.mark.parametrize(
    ("spec", "stdout", "value"),
    [
        ("json", b'{"a":[1,2.5,null]}\n', {"a": [1, 2.5, None]}),
        ("csv", b'name,size\r\n"a,b",1\r\n', [{"name": "a,b", "size": "1"}]),
        ("csv", b"", []),
        ("yaml", b"answer: NO\nlist: [1]\n", {"answer": "NO", "list": [1]}),
        ("lines", b"a\n\nb\n", ["a", "", "b"]),
        ("lines", b"", []),
        ("lines", b"no end", ["no end"]),
        ("text", "é\n".encode(), "é\n"),
    ],
)
def test_each_format_is_read_exactly(spec: str, stdout: bytes, value: object) -> None:
    assert parsed(spec, stdout) == value


@pytest.mark.req("000-113")
@pytest.mark.parametrize(
    ("spec", "stdout", "says"),
    [
        ("json", b"", "not JSON"),
        ("json", b"{} {}", "not JSON"),
        ("json", b'{"a":1,"a":2}', "twice"),
        ("json", b"NaN", "NaN"),
        ("json", b"1e999", "range of a double"),
        ("json", b"[" * 100_000, "not JSON"),
        ("json", b"9" * 5_000, "not JSON"),
        ("json_lines", b'{}\n\n{"a":}\n', "line 3"),
        ("csv", b"a,b\n1,2\n3\n", "line 3 has 1 fields"),
        ("csv", b"a,a\n1,2\n", "twice"),
        ("csv", b'a\n"open\n', "not CSV"),
        ("yaml", b"a: 1\na: 2\n", "stdout:2:1"),
        ("yaml", b"a: *x\n", "alias"),
        ("text", b"abc\xff", "byte offset 3"),
    ],
)
def test_what_is_not_as_declared_is_refused_with_its_place(
    spec: str, stdout: bytes, says: str
) -> None:
    with pytest.raises(OutputInvalid, match=says) as refused:
        parsed(spec, stdout)
    assert refused.value.code == "OUTPUT_INVALID"


def test_output_at_the_limit_is_parsed_and_one_byte_more_is_not() -> None:
    assert parsed("text", b"x" * STDOUT_BYTES) == "x" * STDOUT_BYTES
    with pytest.raises(OutputInvalid, match="was cut"):
        parsed("text", b"x" * (STDOUT_BYTES + 1))


def test_the_first_part_of_a_cut_stream_is_not_taken_for_the_whole() -> None:
    lines = (Transform(type="parse", spec="lines"),)
    assert apply_output_transforms(lines, b"a\n") == ["a"]
    with pytest.raises(OutputInvalid, match="was cut"):
        apply_output_transforms(lines, b"a\n", truncated=True)


def test_without_a_transform_there_is_no_value() -> None:
    assert apply_output_transforms((), b"\xff") is None


@given(
    stdout=st.binary(max_size=200),
    spec=st.sampled_from(["json", "json_lines", "csv", "yaml", "lines", "text"]),
)
def test_no_output_whatever_raises_anything_else(stdout: bytes, spec: str) -> None:
    try:
        parsed(spec, stdout)
    except OutputInvalid as error:
        assert error.message


def test_the_seeds_ripgrep_adapter_is_supported() -> None:
    assert check_supported(make_entry().adapter) == ()


PARSE = Transform(type="parse", spec="json")


@pytest.mark.parametrize(
    ("inputs", "outputs", "fields"),
    [
        ((), (Transform(type="extract", spec="$.data"),), ["transforms.output[0]"]),
        ((), (PARSE, Transform(type="format", spec="{value}")), ["transforms.output[1]"]),
        ((), (PARSE, PARSE), ["transforms.output[1]"]),
        ((), (Transform(type="parse", spec="xml"),), ["transforms.output[0]"]),
        ((), (Transform(type="parse", spec={"a": []}),), ["transforms.output[0]"]),
        ((Transform(type="rename", spec={"a": "b"}),), (PARSE,), ["transforms.input[0]"]),
    ],
)
def test_a_transform_that_does_not_exist_is_refused_and_never_skipped(
    inputs: tuple[Transform, ...], outputs: tuple[Transform, ...], fields: list[str]
) -> None:
    adapter = make_entry(input_transforms=inputs, output_transforms=outputs).adapter
    found = check_supported(adapter)
    assert [violation.field for violation in found] == fields
    assert {violation.code for violation in found} == {"TRANSFORM_UNSUPPORTED"}
    if not inputs:
        with pytest.raises(OutputInvalid):
            apply_output_transforms(outputs, b"{}")
