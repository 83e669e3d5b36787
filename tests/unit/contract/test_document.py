from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.documents.document import DOCUMENT_BYTES, document_of, load_document
from actum.errors import ContractInvalid, Problem


def value_of(text: str | bytes) -> object:
    return load_document(text).value


def refusals(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(ContractInvalid) as caught:
        load_document(text, file="c.yaml")
    return caught.value.problems


def places(problems: tuple[Problem, ...]) -> list[tuple[str, int, int]]:
    return [(problem.field, problem.line, problem.column) for problem in problems]


@pytest.mark.parametrize(
    "written",
    ["NO", "no", "on", "off", "yes", "y", "12:30:45", "2026-01-16", "1_000", "0b11", "<<"],
)
def test_what_only_yaml_1_1_gave_a_meaning_stays_text(written):
    assert value_of(f"a: {written}") == {"a": written}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("-5", -5),
        ("+5", 5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ('!!int "5"', 5),
        ("9007199254740991", 9007199254740991),
    ],
)
def test_plain_scalars_follow_the_core_schema(written, meant):
    value = value_of(f"a: {written}")["a"]
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    "written", [".inf", "-.INF", ".nan", "1e999", "9007199254740992", "-" + "9" * 6000]
)
def test_numbers_that_json_cannot_say_exactly_are_refused(written):
    (problem,) = refusals(f"a: {written}")
    assert (problem.field, problem.line, problem.column) == ("a", 1, 4)
    assert "in quotes" in problem.message


def test_positions_of_values_and_keys_count_characters_from_one():
    document = load_document('é: {"ü": [1,\n  22]}\n')
    assert document.positions[()] == (1, 1)
    assert document.positions[("é", "ü", 0)] == (1, 11)
    assert document.positions[("é", "ü", 1)] == (2, 3)
    assert document.keys[("é", "ü")] == (1, 5)


def test_every_problem_of_a_readable_text_is_reported_at_once_and_in_order():
    text = "a: 1\nb: &x [1]\nc: *x\na: 2\n3: q\ntrue: r\n[1]: s\nd: !!set {}\ne: !mine z\n"
    found = refusals(text)
    assert places(found) == [
        ("c", 3, 4),
        ("a", 4, 1),
        ("", 5, 1),
        ("", 6, 1),
        ("", 7, 1),
        ("d", 8, 4),
        ("e", 9, 4),
    ]
    assert "line 1" in found[1].message
    assert {problem.file for problem in found} == {"c.yaml"}


def test_a_syntax_error_does_not_hide_what_was_found_before_it():
    assert places(refusals("a: 1\na: 2\nb: [1\nc: 3\n")) == [("a", 2, 1), ("", 4, 2)]


def test_an_alias_bomb_is_refused_without_being_expanded():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    found = refusals("\n".join(lines))
    assert len(found) == 100  # no more than help
    assert all("alias" in problem.message for problem in found)


@pytest.mark.parametrize(
    "text", ["[" * 65 + "]" * 65, "- " * 66 + "x", "{a: " * 65 + "1" + "}" * 65, "[" * 500_000]
)
def test_nesting_is_bounded(text):
    (problem,) = refusals(text)
    assert "64 levels" in problem.message


def test_nesting_up_to_the_bound_is_read():
    value = value_of("[" * 64 + "]" * 64)
    for _ in range(63):
        (value,) = value
    assert value == []


def test_the_size_of_a_document_is_bounded():
    fits = "a: " + "x" * (DOCUMENT_BYTES - 3)
    assert value_of(fits) == {"a": fits[3:]}
    (problem,) = refusals(fits + "y")
    assert problem.permitted == f"at most {DOCUMENT_BYTES} bytes"


def test_the_number_of_values_is_bounded():
    (problem,) = refusals("[" + "1," * 100_001 + "]")
    assert "100000" in problem.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("# nothing\n", "empty"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("%YAML 1.1\n---\na: 1\n", "YAML 1.2"),
        (b"a: \xff", "UTF-8"),
        ("a: \x07", "U+0007"),
        ("a: b\u2028c", "U+2028"),
        ("a: \ud800", "U+D800"),
        ('a: "\\ud800"', "not YAML"),
        ("a:\n\tb: 1", "not YAML"),
    ],
)
def test_a_text_that_is_not_one_clear_document_is_refused(text, says):
    (problem,) = refusals(text)
    assert says in problem.message
    assert problem.line >= 1


def test_the_place_of_a_bad_byte_is_its_line_and_column():
    (problem,) = refusals("a: é\nbé: \udc00".encode(errors="surrogatepass"))
    assert (problem.line, problem.column) == (2, 5)


def test_json_is_read_by_the_same_rules():
    text = '{\n\t"a": "\\ud83d\\ude00 \\\\ud83d \\/",\n\t"b":[true,null,1.5]}'
    document = load_document(text)
    assert document.value == json.loads(text)
    assert document.positions[("b", 0)] == (3, 7)
    assert places(refusals('{"a": 1, "a": 2}')) == [("a", 1, 10)]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_every_json_text_is_read_as_json_reads_it(value, ascii_only):
    text = json.dumps({"v": value}, ensure_ascii=ascii_only)
    assert repr(load_document(text).value) == repr(json.loads(text))


@given(json_values)
def test_data_in_memory_comes_back_as_an_equal_private_copy(value):
    original = {"v": value}
    copied = document_of(original).value
    assert repr(copied) == repr(original)
    assert copied is not original


def test_a_change_to_the_original_does_not_reach_the_document():
    original = {"list": [1], "tuple": (1, 2)}
    document = document_of(original)
    original["list"].append(2)
    assert document.value == {"list": [1], "tuple": [1, 2]}


def test_everything_in_memory_that_is_not_json_is_named():
    with pytest.raises(ContractInvalid) as caught:
        document_of(
            {"a": b"x", "b": {1: 2}, "c": [float("nan"), 2**53], "d": "\ud800", "e": {3}, "f": 1j}
        )
    assert [problem.field for problem in caught.value.problems] == [
        "a",
        "b",
        "c[0]",
        "c[1]",
        "d",
        "e",
        "f",
    ]
    assert "base64" in caught.value.problems[0].message


def test_data_that_contains_itself_is_refused():
    deep: list[object] = []
    deep.append(deep)
    wide: list[object] = []
    wide += [wide, wide]
    for knot in (deep, wide):
        with pytest.raises(ContractInvalid, match="64 levels"):
            document_of({"a": knot})


def test_data_that_shares_its_parts_is_not_expanded_beyond_the_bound():
    shared: list[object] = ["x"]
    for _ in range(20):
        shared = [shared, shared]
    with pytest.raises(ContractInvalid, match="100000 values"):
        document_of({"a": shared})
