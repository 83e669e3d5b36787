"""`trials: N`: repetitions that are no duplicates, each an item with a receipt of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actum.errors import ContractInvalid
from actum.work.dag import read_work, resolve_dependencies

from .shop import add_agent, add_program, item, make_project, opened

_PROGRAM = """
    import json, os, pathlib
    item = json.load(open(os.environ["ACTUM_ITEM"]))
    pathlib.Path("out-" + item["id"].replace("~", "-")).write_text(str(item.get("trial", 1)))
"""


def _work(*items: dict[str, Any]) -> str:
    return json.dumps({"items": list(items)})


def test_a_repeated_item_is_as_many_items_and_dependents_wait_for_all() -> None:
    items = read_work(
        _work(
            item(id="a", trials=3),
            item(id="b", trials=2, dependencies=["a"]),
            item(id="c", dependencies=["a~t2"]),
        )
    )
    levels = [[each.id for each in level] for level in resolve_dependencies(items)]
    assert levels == [["a", "a~t2", "a~t3"], ["b", "b~t2", "c"]]
    by_id = {each.id: each for each in items}
    assert by_id["b~t2"].dependencies == ("a", "a~t2", "a~t3")
    assert [by_id[name].trial for name in ("a", "a~t2", "a~t3", "c")] == [1, 2, 3, 1]
    assert len({each.sha256 for each in items}) == len(items)
    assert by_id["a"].substance != by_id["a~t2"].substance


@pytest.mark.parametrize(
    "items",
    [
        [item(id="a~t2")],
        [item(id="a" * 125, trials=2)],
        [item(id="a", trials=0)],
        [item(id="a", trials=1_001)],
        [item(id=f"a{number}", trials=1_000) for number in range(11)],
    ],
)
def test_what_cannot_be_repeated_is_refused(items: list[dict[str, Any]]) -> None:
    with pytest.raises(ContractInvalid):
        read_work(_work(*items))
    assert read_work(_work(item(id="a" * 122, trials=1_000)))  # the control


@pytest.mark.sandbox
def test_trials_commit_in_order_with_receipts_and_are_no_duplicates(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_program(project, _PROGRAM)
    with opened(project) as rt:
        done = rt.work_file(_work(item(id="a", trials=3, agent_name="Careful writer")))
        assert done.ok, done
        assert list(done.results) == ["a", "a~t2", "a~t3"]
        receipts = {result.receipt_id for result in done.results.values()}
        assert len(receipts) == 3
        steps = rt.runs.status(done.run_id)["steps"]
        assert isinstance(steps, list)
        assert [step["itemId"] for step in steps] == ["a", "a~t2", "a~t3"]  # type: ignore[index, call-overload]
    written = {path.name: path.read_text() for path in project.glob("out-*")}
    assert written == {"out-a": "1", "out-a-t2": "2", "out-a-t3": "3"}


@pytest.mark.sandbox
def test_equal_work_without_trials_is_still_a_duplicate(tmp_path: Path) -> None:
    """The control: the same two items by hand, from one state, with one effect."""
    project = make_project(tmp_path / "p")
    add_agent(project, "true")
    with opened(project) as rt:
        twice = rt.work_file(_work(item(id="a"), item(id="b")), new=True)
        denied = [result.denial_reason for result in twice.results.values()]
        assert denied[0] is None
        assert "Duplicate run" in str(denied[1])
        assert "trials: N" in str(denied[1]), "it says what to do"
        add_agent(project, "true # again")
        assert rt.work_file(_work(item(id="a", trials=2))).ok


def test_a_name_of_an_agent_is_for_people_only() -> None:
    (named,) = read_work(_work(item(id="a", agent_name="Ada ✍")))
    (plain,) = read_work(_work(item(id="a")))
    assert named.agent_name == "Ada ✍"
    assert named.agent_id == plain.agent_id == "agent-1"
    assert named.substance == plain.substance
