from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.factories import make_entry

from actum.adapters.output_transforms import ToolAnswer, apply_output_transforms
from actum.adapters.parsers import OutputInvalid
from actum.contract.limits import STDOUT_BYTES
from actum.registry.model import Transform
from actum.registry.queries import QueryFailed


def parsed(spec: str, stdout: bytes) -> Any:
    return applied(stdout, Transform(type="parse", spec=spec))


def applied(stdout: bytes, *transforms: Transform, **said: Any) -> Any:
    return apply_output_transforms(transforms, ToolAnswer(raw=stdout, **said))


@pytest.mark.req("000-134")
def test_json_lines_become_a_list_of_objects() -> None:
    adapter = make_entry().adapter
    stdout = '{"type":"begin"}\n{"text":"a\u2028b"}\n'.encode()
    assert applied(stdout, *adapter.output_transforms) == [
        {"type": "begin"},
        {"text": "a\u2028b"},
    ]
    assert applied(b"", *adapter.output_transforms) == []


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
    with pytest.raises(OutputInvalid, match="was truncated"):
        parsed("text", b"x" * (STDOUT_BYTES + 1))


def test_the_first_part_of_a_cut_stream_is_not_taken_for_the_whole() -> None:
    lines = Transform(type="parse", spec="lines")
    assert applied(b"a\n", lines) == ["a"]
    with pytest.raises(OutputInvalid, match="was truncated"):
        applied(b"a\n", lines, truncated=True)


def test_without_a_transform_there_is_no_value() -> None:
    assert applied(b"\xff") is None


@given(
    stdout=st.binary(max_size=200),
    spec=st.sampled_from(["json", "json_lines", "csv", "yaml", "lines", "text"]),
)
def test_no_output_whatever_raises_anything_else(stdout: bytes, spec: str) -> None:
    try:
        parsed(spec, stdout)
    except OutputInvalid as error:
        assert error.message


PARSE = Transform(type="parse", spec="json")


def extract(query: str) -> Transform:
    return Transform(type="extract", spec=query)


def formatted(template: str) -> Transform:
    return Transform(type="format", spec=template)


def test_transforms_are_applied_in_their_order() -> None:
    answer = b'{"data":{"name":"a","inner":"{\\"n\\":7}"}}'
    assert applied(answer, PARSE, extract("$.data"), formatted("<{name}>")) == "<a>"
    assert applied(answer, PARSE, extract("$.data.inner"), PARSE, extract("$.n")) == 7
    with pytest.raises(OutputInvalid, match=r"\$\.name"):
        applied(answer, PARSE, formatted("<{name}>"), extract("$.data"))


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("$", {"a": [1, {"b": None}], "c": "x"}),
        ("$.a[1].b", None),
        ("$['c']", "x"),
        ("$.a[-1]", {"b": None}),
        ("$.a[*]", [1, {"b": None}]),
        ("$..b", [None]),
        ("$.a[?@.b == null]", [{"b": None}]),
        ("$.nothing[*]", []),
    ],
)
def test_a_path_to_one_place_gives_its_value_and_any_other_a_list(
    query: str, value: object
) -> None:
    assert applied(b'{"a":[1,{"b":null}],"c":"x"}', PARSE, extract(query)) == value


@pytest.mark.req("000-113")
@pytest.mark.parametrize(
    "transforms",
    [
        (PARSE, extract("$.missing")),
        (PARSE, extract("$[0]")),
        (PARSE, formatted("{missing}")),
        (PARSE, extract("$.n"), PARSE),
        (extract("$.n"),),
        (formatted("{$}"),),
    ],
)
def test_what_cannot_be_done_as_written_is_refused_and_never_skipped(
    transforms: tuple[Transform, ...],
) -> None:
    with pytest.raises(OutputInvalid):
        applied(b'{"n":1}', *transforms)
    assert applied(b'{"n":1}', PARSE, extract("$.n")) == 1


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{name} has {$.tags[0]}", "é has x y"),
        ("{{{name}}}", "{é}"),
        ("{$['odd } key']}", "1.5"),
        ("{tags}", '["x y",null]'),
        ("{big}", "12345678901234567890"),
        ("{yes}", "true"),
        ("no placeholder", "no placeholder"),
        ("{name.__class__}", None),
        ("{name!r}", None),
        ("{name:>10}", None),
    ],
)
def test_a_template_takes_values_and_nothing_else(template: str, text: str | None) -> None:
    answer = (
        '{"name":"é","tags":["x y",null],"odd } key":1.5,"big":12345678901234567890,"yes":true}'
    ).encode()
    if text is None:
        with pytest.raises((OutputInvalid, QueryFailed)):
            applied(answer, PARSE, formatted(template))
    else:
        assert applied(answer, PARSE, formatted(template)) == text


def test_text_that_looks_like_a_placeholder_is_not_looked_at_again() -> None:
    answer = b'{"a":"{b}","b":"secret"}'
    assert applied(answer, PARSE, formatted("{a}")) == "{b}"


def test_an_answer_with_a_value_needs_no_parsing() -> None:
    value = {"data": [1]}
    assert applied(b"", extract("$.data"), has_value=True, value=value) == [1]
    assert applied(b"a,b\n1,2\n", Transform(type="parse", spec="csv"), has_value=True) == [
        {"a": "1", "b": "2"}
    ]
    assert applied(b"", has_value=True, value=value) == value


def test_a_deep_answer_is_refused_and_breaks_nothing() -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    with pytest.raises(OutputInvalid):
        applied(deep, PARSE, extract("$..a"))
