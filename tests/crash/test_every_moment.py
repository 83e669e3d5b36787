"""kill -9 at the moments between any two things that a process does to the world.

`make test` strikes two hundred of them, evenly spread; `make soak` strikes every one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .matrix import SOAK, Case, count, make_template, problems, run, spread

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moments")
    make_template(folder)
    return folder


@pytest.fixture(scope="module")
def totals(folder: Path) -> dict[str, Any]:
    return count(folder)


def _strike(folder: Path, cases: list[Case]) -> None:
    reports = run(folder, cases)
    print(f"\n{len(reports)} moments struck")
    assert [each for report in reports for each in problems(report)] == []


@pytest.mark.req("000-187")
@pytest.mark.parametrize(
    ("victim", "wanted"),
    [("actum", 80), ("spawner", 20), ("maker", 20), ("init", 24), ("tool", 12)],
)
def test_a_kill_at_any_moment_leaves_nothing_and_every_record_is_closed(
    folder: Path, totals: dict[str, Any], victim: str, wanted: int
):
    moments = spread(totals[victim], wanted, late=victim == "actum")
    _strike(folder, [{"victim": victim, "kill_at": at} for at in moments])


@pytest.mark.req("000-187")
def test_a_kill_at_a_system_call_that_changes_something_is_survived(
    folder: Path, totals: dict[str, Any]
):
    """Below Python: between the writes and syncs that SQLite makes of one commit, too."""
    every: list[Case] = [
        {"victim": "actum", "syscall": name, "nth": nth}
        for name, times in sorted(totals["syscalls"].items())
        for nth in range(1, times + 1)
    ]
    chosen = [every[at - 1] for at in spread(len(every), 24)]
    _strike(folder, chosen)


@pytest.mark.req("000-187")
def test_interpreters_that_wait_for_a_snippet_die_with_their_process(
    folder: Path, totals: dict[str, Any]
):
    moments = spread(totals["snippet"], 12, late=True)
    _strike(folder, [{"victim": "actum", "kill_at": at, "snippet": True} for at in moments])


def test_a_throwaway_home_is_gone_whenever_its_process_was_killed(
    folder: Path, totals: dict[str, Any]
):
    # Its moments are mostly those of writing the same few files again and again.
    wanted = 1_000 if SOAK else 10
    total = totals["temporary"]
    moments = {1 + index * total // wanted for index in range(wanted)}
    _strike(
        folder, [{"victim": "actum", "kill_at": at, "temporary": True} for at in sorted(moments)]
    )
