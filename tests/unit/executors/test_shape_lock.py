"""Ids and shapes are locked: a change fails here until it is approved with a new protocol."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass

import pytest

from actum.contract.canonical import sha256_json
from actum.executors import lock
from actum.executors.model import ActionRequest, ActionResult
from actum.executors.plane import shipped_reviews

IDS = sorted(
    review.declared.executor_id for review in shipped_reviews() if review.declared is not None
)


@pytest.mark.req("001-66", "001-67", "001-68")
def test_the_code_is_what_the_lock_says() -> None:
    assert lock.problems(lock.read(), lock.current(IDS)) == []
    assert lock.protocol() == lock.read()[-1]["protocol"]


@pytest.mark.req("001-66")
@pytest.mark.parametrize("ids", [IDS[1:], [*IDS, "more"], ["renamed", *IDS[1:]]])
def test_another_set_of_ids_does_not_fit(ids: list[str]) -> None:
    (problem,) = lock.problems(lock.read(), lock.current(ids))
    assert "executor_ids changed: add an entry with protocol 2" in problem


@pytest.mark.req("001-67", "001-68")
@pytest.mark.parametrize(("kind", "name"), [(ActionRequest, "request"), (ActionResult, "result")])
def test_another_shape_does_not_fit(kind: type, name: str) -> None:
    hints = [(field, str) for field in ActionRequest.__dataclass_fields__]
    for changed in (
        make_dataclass("Less", hints[:-1]),
        make_dataclass("More", [*hints, ("more", int)]),
        make_dataclass("Retyped", [("action", int), *hints[1:]]),
    ):
        assert lock.shape(changed) != lock.shape(kind)
    code = {**lock.current(IDS), name: sha256_json(["other"])}
    (problem,) = lock.problems(lock.read(), code)
    assert f"{name} changed" in problem


def test_an_optional_field_is_another_shape_than_a_required_one() -> None:
    @dataclass
    class Required:
        a: int

    @dataclass
    class Optional:
        a: int = 0

    assert lock.shape(Required) != lock.shape(Optional)


@pytest.mark.req("001-66", "001-67", "001-68")
def test_a_bump_needs_a_higher_number_an_approval_and_the_chain() -> None:
    entries, code = lock.read(), {**lock.current(IDS), "request": "new"}
    added = {
        **entries[-1],
        **code,
        "protocol": entries[-1]["protocol"] + 1,
        "why": "a reason",
        "previous": sha256_json(entries[-1]),
    }
    assert lock.problems([*entries, added], code) == []
    for wrong, said in (
        ({"protocol": 1}, "not higher"),
        ({"approved_by": " "}, "nobody approved"),
        ({"why": ""}, "nobody said why"),
        ({"previous": "0"}, "earlier entry was changed"),
        ({"extra": 1}, "must have exactly"),
    ):
        assert any(said in each for each in lock.problems([*entries, {**added, **wrong}], code))
    edited = [{**entries[0], "why": "other"}, *entries[1:], added]
    assert "earlier entry was changed" in " ".join(lock.problems(edited, code))
    assert lock.problems([], code) == ["there is no protocol"]
