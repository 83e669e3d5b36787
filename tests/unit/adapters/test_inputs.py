from __future__ import annotations

from typing import Any

import pytest
from policy.factories import make_contract, make_entry

from actum.adapters.input_transforms import transformed
from actum.adapters.kinds import build_call
from actum.errors import Refused
from actum.registry.model import Transform


def step(kind: str, spec: Any) -> Transform:
    return Transform(type=kind, spec=spec)


def after(given: dict[str, Any], *steps: Transform) -> dict[str, Any]:
    contract = make_contract(parameters=given)
    return dict(transformed(contract, make_entry(input_transforms=steps)).inputs.parameters)


@pytest.mark.req("000-110")
def test_transforms_are_applied_in_their_order() -> None:
    rename, default = step("rename", {"q": "pattern"}), step("default", {"q": "x"})
    assert after({}, default, rename) == {"pattern": "x"}
    assert after({}, rename, default) == {"q": "x"}


@pytest.mark.parametrize(
    ("kind", "spec", "given", "expected"),
    [
        ("rename", {"a": "b"}, {"a": 1, "c": 2}, {"b": 1, "c": 2}),
        ("rename", {"a": "b", "b": "a"}, {"a": 1, "b": 2}, {"b": 1, "a": 2}),
        ("rename", {"a": "b"}, {"c": 2}, {"c": 2}),
        ("map", {"a": {"low": 1, "true": "yes"}}, {"a": "low"}, {"a": 1}),
        ("map", {"a": {"low": 1, "true": "yes"}}, {"a": True}, {"a": "yes"}),
        ("map", {"a": {"5": "five"}}, {"a": 5}, {"a": "five"}),
        ("map", {"a": {"low": 1}}, {"a": "other", "b": "low"}, {"a": "other", "b": "low"}),
        ("default", {"a": 1, "b": [2]}, {"a": 0}, {"a": 0, "b": [2]}),
        ("default", {"a": 1}, {"a": None}, {"a": 1}),
        ("validate", {"required": ["a"]}, {"a": 1}, {"a": 1}),
    ],
)
def test_each_type_does_what_its_spec_says(
    kind: str, spec: Any, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert after(given, step(kind, spec)) == expected


@pytest.mark.parametrize(
    ("steps", "field"),
    [
        ([step("validate", {"properties": {"a": {"type": "integer"}}})], "inputs.parameters.a"),
        ([step("validate", {"required": ["b"]})], "inputs.parameters"),
        ([step("validate", "json_schema")], "inputs.parameters"),
        ([step("rename", {"a": "c"})], "inputs.parameters.a"),
    ],
)
def test_what_does_not_fit_is_refused_without_its_value(steps: list[Transform], field: str) -> None:
    with pytest.raises(Refused) as refused:
        after({"a": "canary-value", "c": 1}, *steps)
    assert refused.value.code == "ARGS_INVALID"
    assert field in {violation.field for violation in refused.value.violations}
    assert "canary-value" not in str(refused.value)


@pytest.mark.req("000-110")
def test_what_comes_out_is_what_the_call_is_built_from() -> None:
    entry = make_entry(
        input_transforms=(
            step("rename", {"query": "pattern"}),
            step("map", {"query": {}, "pattern": {"todo": "TODO"}}),
            step("default", {"path": "src"}),
            step("validate", "json_schema"),
        )
    )
    call = build_call(make_contract(parameters={"query": "todo"}), entry)
    assert [argument.value for argument in call.arguments][-2:] == ["TODO", "src"]


def test_no_transform_gets_around_the_schema_of_the_tool() -> None:
    entry = make_entry(input_transforms=(step("map", {"max_count": {"1": "many"}}),))
    contract = make_contract(parameters={"pattern": "a", "path": ".", "max_count": 1})
    with pytest.raises(Refused) as refused:
        build_call(contract, entry)
    assert "inputs.parameters.max_count" in {v.field for v in refused.value.violations}
