"""When an item that is ready gives its slot back, and when it waits for its turn."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from actum.work.item_process import Hear, Stop
from actum.work.level import HOLD, Level, LevelItem
from actum.work.model import Metrics, RunResult, Status, WorkItem

_SLOW_S = 0.5
_SUCCESS = RunResult(
    status=Status.SUCCESS,
    receipt_id="r",
    receipt_path="r",
    output_hash="",
    artifact_hashes={},
    metrics=Metrics(),
)


@pytest.mark.parametrize(("first_is", "held"), [("ready", []), ("at work", ["b", "c"])])
def test_an_item_is_stored_only_while_one_before_it_works(first_is: str, held: list[str]) -> None:
    """`a` is slow: in its commit, for which the others wait, or in its work."""
    found: list[str] = []
    a_is_ready, both_said = threading.Event(), threading.Barrier(3)

    def work(each: LevelItem[Any], hear: Hear) -> RunResult | None:
        both_said.wait()
        name = each.item.id
        if name == "a" and first_is == "at work":
            time.sleep(_SLOW_S)
        if name == "a":
            a_is_ready.set()
        elif first_is == "ready":
            a_is_ready.wait()
        if hear({"at": "ready", "item": name, "elapsed_ms": 0}) == HOLD:
            found.append(name)
            return None
        if name == "a" and first_is == "ready":
            time.sleep(_SLOW_S)
        return _SUCCESS

    items = [
        LevelItem[RunResult](
            item=WorkItem(id=name, agent_id="agent-1", description="x"), run_id=name
        )
        for name in "abc"
    ]
    ended: list[str] = []

    def bring(each: LevelItem[RunResult]) -> RunResult:
        ended.append(each.item.id)
        return _SUCCESS

    Level(items, work, bring).run(3, Stop())
    assert sorted(found) == held
    assert ended == held, "in the order of their ids"
