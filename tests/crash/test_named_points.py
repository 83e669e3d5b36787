"""kill -9 of the actum process, the spawner or the init, before and after every named step.

`make test` kills spawner and init on one side of each step, by turns; `make soak` on both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .matrix import SOAK, Case, make_template, problems, run
from .points import POINTS, Point

pytestmark = pytest.mark.sandbox


def _cases(victim: str) -> list[Case]:
    both = SOAK or victim == "actum"
    cases: list[Case] = [
        {"victim": victim, "point": point.name, "when": when}
        for number, point in enumerate(POINTS)
        for when in (("before", "after") if both else (("before", "after")[number % 2],))
        # Struck before there is one, and after there is none, is another case's business.
        if victim == "actum" or point.name not in ("open", "parse", "completion", "close")
    ]
    return cases * (10 if SOAK else 1)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_the_step_is_where_the_table_says(point: Point):
    holder, attribute = point.find()
    assert callable(getattr(holder, attribute, None)), f"moved: correct {point} in points.py"


@pytest.mark.soak
@pytest.mark.req("000-187")
@pytest.mark.parametrize("victim", ["actum", "spawner", "init"])
def test_a_kill_at_a_named_step_leaves_nothing_and_is_told_as_it_was(tmp_path: Path, victim: str):
    make_template(tmp_path)
    reports = run(tmp_path, _cases(victim))
    assert [each for report in reports for each in problems(report)] == []


@pytest.mark.parametrize("victim", ["spawner", "init"])
def test_a_sandbox_struck_while_its_tool_runs_is_a_fault_and_the_next_one_works(
    tmp_path: Path, victim: str
):
    make_template(tmp_path)
    case: Case = {"victim": victim, "point": "output", "when": "before", "slow": True}
    reports = run(tmp_path, [case] * 3)
    assert [each for report in reports for each in problems(report)] == []
