"""Ids and shapes are locked: a change fails here until it is approved with a new protocol."""

from __future__ import annotations

import typing
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass

import pytest
from pure_house import PureHouse, wrapped

from actum.contract.canonical import sha256_json
from actum.executors import child, shape_lock
from actum.executors.model import ActionRequest, ActionResult
from actum.executors.plane import shipped_reviews

IDS = sorted(
    review.declared.executor_id for review in shipped_reviews() if review.declared is not None
)


@pytest.mark.req("001-66", "001-67", "001-68")
def test_the_code_is_what_the_lock_says() -> None:
    assert shape_lock.problems(shape_lock.read(), shape_lock.current(IDS)) == []
    assert shape_lock.protocol() == shape_lock.read()[-1]["protocol"]


@pytest.mark.req("001-66")
@pytest.mark.parametrize("ids", [IDS[1:], [*IDS, "more"], ["renamed", *IDS[1:]]])
def test_another_set_of_ids_does_not_fit(ids: list[str]) -> None:
    (problem,) = shape_lock.problems(shape_lock.read(), shape_lock.current(ids))
    assert "executor_ids changed: add an entry with protocol 2" in problem


@pytest.mark.req("001-67", "001-68")
@pytest.mark.parametrize(("kind", "name"), [(ActionRequest, "request"), (ActionResult, "result")])
def test_another_shape_does_not_fit(kind: type, name: str) -> None:
    hints = typing.get_type_hints(kind)
    parts = [(each.name, hints[each.name], field(**_default(each))) for each in fields(kind)]
    assert shape_lock.shape(make_dataclass("Same", parts)) == shape_lock.shape(kind)
    for changed in (
        make_dataclass("Less", parts[:-1]),
        make_dataclass("More", [*parts, ("more", int, field(default=0))]),
        make_dataclass("Retyped", [("action", int), *parts[1:]]),
    ):
        assert shape_lock.shape(changed) != shape_lock.shape(kind)
    code = {**shape_lock.current(IDS), name: sha256_json(["other"])}
    (problem,) = shape_lock.problems(shape_lock.read(), code)
    assert f"{name} changed" in problem


def _default(of: Field) -> dict[str, typing.Any]:
    if of.default_factory is not MISSING:
        return {"default_factory": of.default_factory}
    return {} if of.default is MISSING else {"default": of.default}


@pytest.mark.req("001-67")
def test_the_request_inside_has_the_locked_shape_too(
    own_house: PureHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
def execute(req):
    return {name: type(getattr(req, name)).__name__ for name in dir(req) if name[:1] != "_"}
"""
    own_house.put("shown", wrapped("shown", body))
    own_house.reopen()
    inside = own_house.plane.value(own_house.act("shown"))
    assert inside == {"action": "str", "payload": "dict", "trace_id": "str", "ts_utc": "datetime"}
    assert set(inside) == {each.name for each in fields(ActionRequest)}
    monkeypatch.setattr(child.ActionRequest, "__slots__", ("action", "payload", "more"))
    (problem,) = shape_lock.problems(shape_lock.read(), shape_lock.current(IDS))
    assert "request changed: add an entry with protocol 2" in problem


def test_an_optional_field_is_another_shape_than_a_required_one() -> None:
    @dataclass
    class Required:
        a: int

    @dataclass
    class Optional:
        a: int = 0

    assert shape_lock.shape(Required) != shape_lock.shape(Optional)


@pytest.mark.req("001-66", "001-67", "001-68")
def test_a_bump_needs_a_higher_number_an_approval_and_the_chain() -> None:
    entries, code = shape_lock.read(), {**shape_lock.current(IDS), "request": "new"}
    added = {
        **entries[-1],
        **code,
        "protocol": entries[-1]["protocol"] + 1,
        "why": "a reason",
        "previous": sha256_json(entries[-1]),
    }
    assert shape_lock.problems([*entries, added], code) == []
    for wrong, said in (
        ({"protocol": 1}, "not higher"),
        ({"approved_by": " "}, "approved_by or why is empty"),
        ({"why": ""}, "approved_by or why is empty"),
        ({"previous": "0"}, "earlier entry was changed"),
        ({"extra": 1}, "must have exactly"),
    ):
        assert any(
            said in each for each in shape_lock.problems([*entries, {**added, **wrong}], code)
        )
    edited = [{**entries[0], "why": "other"}, *entries[1:], added]
    assert "earlier entry was changed" in " ".join(shape_lock.problems(edited, code))
    assert shape_lock.problems([], code) == ["there is no protocol"]
