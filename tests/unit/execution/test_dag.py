"""Levels of work items: what may not be sorted is refused, what may be is sorted one way only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from actum.errors import ContractInvalid, Refused
from actum.work.dag import read_work, resolve_dependencies
from actum.work.model import WorkItem


def _item(name: str, *needs: str, agent: int = 1) -> WorkItem:
    return WorkItem(
        id=name, agent_id=f"agent-{agent}", description="work", dependencies=tuple(needs)
    )


def _names(items: list[WorkItem]) -> list[list[str]]:
    return [[item.id for item in level] for level in resolve_dependencies(items)]


@pytest.mark.req("002-77", "002-76")
def test_the_contracts_own_example() -> None:
    items = [
        _item("agent-0", agent=0),
        _item("agent-5", "agent-3", agent=5),
        *(_item(f"agent-{number}", agent=number) for number in (3, 1, 2)),
        _item("agent-4", "agent-1", "agent-2", agent=4),
    ]
    wanted = [["agent-1", "agent-2", "agent-3"], ["agent-4", "agent-5"], ["agent-0"]]
    assert _names(items) == wanted


@pytest.mark.req("002-76")
def test_the_reconciler_comes_after_items_it_does_not_name() -> None:
    assert _names([_item("all", agent=0), _item("b", "a"), _item("a")]) == [["a"], ["b"], ["all"]]


@pytest.mark.req("002-72")
@pytest.mark.parametrize(
    "items",
    [
        [_item("a", "a")],
        [_item("a", "b"), _item("b", "a")],
        [_item("x"), _item("a", "c", "x"), _item("b", "a"), _item("c", "b")],
        [_item("r", agent=0), _item("a", "r")],
    ],
    ids=["itself", "two", "three", "on the reconciler"],
)
def test_a_cycle_is_refused_and_shown(items: list[WorkItem]) -> None:
    with pytest.raises(Refused, match="->") as refusal:
        resolve_dependencies(items)
    assert refusal.value.code == "WORK_CYCLE"


def test_an_unknown_dependency_and_a_double_id_are_named_together() -> None:
    with pytest.raises(Refused) as refusal:
        resolve_dependencies([_item("a", "ghost"), _item("a")])
    codes = [violation.code for violation in refusal.value.violations]
    assert codes == ["WORK_ITEM_TWICE", "WORK_DEPENDENCY_UNKNOWN"]
    assert "ghost" in str(refusal.value)


@pytest.mark.req("002-73")
@settings(deadline=None)
@given(some.integers(1, 25), some.randoms(use_true_random=False))
def test_dependencies_lie_in_earlier_levels_in_whatever_order_they_are_written(
    count: int, chance: random.Random
) -> None:
    items = [
        _item(f"i{n:02}", *(f"i{m:02}" for m in range(n) if chance.random() < 0.2))
        for n in range(count)
    ]
    levels = resolve_dependencies(items)
    place = {item.id: number for number, level in enumerate(levels) for item in level}
    assert len(place) == count
    for item in items:
        needed = [place[name] for name in item.dependencies]
        assert place[item.id] == max(needed, default=-1) + 1
    chance.shuffle(items)
    assert resolve_dependencies(items) == levels


def test_a_work_file_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("items:\n  - {id: a, agent_id: agent-1, description: x}\n")
    assert [item.id for item in read_work(file)] == ["a"]
    file.write_text("items:\n  - {id: a, agent_id: agent-77, description: x, colour: red}\n")
    with pytest.raises(ContractInvalid) as invalid:
        read_work(file)
    assert {problem.field for problem in invalid.value.problems} == {
        "items[0].agent_id",
        "items[0].colour",
    }
    assert all(problem.line == 2 for problem in invalid.value.problems)
