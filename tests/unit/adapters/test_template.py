from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.adapters.template import parse_template, parse_templates

TEMPLATES = [
    ("{pattern}", ("", True, "")),
    ("-m {value}", ("-m", False, ""), ("", True, "")),
    ("--glob={pattern}", ("--glob=", True, "")),
    ("{value}:ro", ("", True, ":ro")),
    ("  --a   x{value}y  -b ", ("--a", False, ""), ("x", True, "y"), ("-b", False, "")),
]


def rendered(name: str, template: str, value: str) -> tuple[str, ...]:
    return tuple(word.render(value) for word in parse_template(name, template).words)


@pytest.mark.req("000-97")
@pytest.mark.parametrize(("template", "expected"), [(t[0], t[1:]) for t in TEMPLATES])
@given(value=st.text())
def test_no_value_changes_the_number_of_elements_or_their_fixed_parts(
    template: str, expected: tuple[tuple[str, bool, str], ...], value: str
) -> None:
    assert rendered("pattern", template, value) == tuple(
        f"{prefix}{value}{suffix}" if placeholder else prefix
        for prefix, placeholder, suffix in expected
    )


@given(value=st.sampled_from(["{value}", "{pattern}", "{0}", "{x.__class__}", "a b", "$(id)", ""]))
def test_a_value_that_looks_like_a_template_is_only_text(value: str) -> None:
    assert rendered("pattern", "--x {value}", value) == ("--x", value)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("{other}", "{other} is not a placeholder"),
        ("{pattern.__class__}", "is not a placeholder"),
        ("{value}{value}", "2 placeholders"),
    ],
)
def test_a_template_that_cannot_be_meant_is_named(template: str, says: str) -> None:
    _, (violation,) = parse_templates({"pattern": template}, "interface.cli.arg_mapping")
    assert violation.code == "TEMPLATE_INVALID"
    assert violation.field == "interface.cli.arg_mapping.pattern"
    assert says in violation.message


def test_every_bad_template_is_reported_and_good_ones_are_not() -> None:
    usable, found = parse_templates({"a": "-a", "b": "", "c": "{z}", "d": "--d={d}"}, "m")
    assert list(usable) == ["a", "d"]
    assert [violation.field for violation in found] == ["m.b", "m.c"]


def test_braces_that_are_no_placeholder_stay_as_they_are() -> None:
    assert rendered("x", "--format={{}} {0}", "v") == ("--format={{}}", "{0}")
    assert parse_template("x", "--format={} ").flag
