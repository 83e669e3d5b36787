"""A worker that lost its claim commits nothing, however late it looks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime

from .runs_project import add_agent, make_project, work_file


def test_an_item_of_a_lost_claim_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > a.txt")
    # Longer than the item takes; the watcher is asked to end after this wait.
    monkeypatch.setattr("actum.runs.carry_out._LOOK_EVERY_S", 60)
    told: list[str] = []

    def on_event(event: Mapping[str, Any]) -> None:
        told.append(event["at"])
        if event["at"] == "called":
            with sqlite3.connect(project / ".actum/actum.db") as connection:
                connection.execute("UPDATE agent_runs SET fence = fence + 1")
            connection.close()

    with Runtime.open(project, pool=False) as rt:
        rt.runs.submit(work_file(), config={"profile": "ci"}, environ={})
        rt.runs.worker(on_event=on_event).drain()
    assert "fenced" in told
    assert not (project / "a.txt").exists()
