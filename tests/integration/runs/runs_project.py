"""Projects with runs, made for a test."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from work.shop import add_agent, item
from work.shop import make_project as make_empty_project

from actum import Runtime
from actum.runs.durable_runs import Runs
from actum.runs.model import Run

__all__ = ["add_agent", "edit_metadata", "item", "make_project", "metadata", "submit", "work_file"]


def make_project(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """A project with the agent of `item()`: a run of an agent that does not exist is refused."""
    project = make_empty_project(folder, files)
    if not (project / "agents/agent-1.yaml").exists():
        add_agent(project, "true")
    return project


def work_file(*items: Mapping[str, Any], **run: Any) -> str:
    document: dict[str, Any] = {"items": [dict(each) for each in items or (item(),)]}
    if run:
        document["run"] = run
    return yaml.safe_dump(json.loads(json.dumps(document)))  # no YAML alias


def submit(rt: Runtime, config: Mapping[str, Any] | None = None, **environ: str) -> Run:
    return rt.runs.submit(work_file(), config=config or {}, environ=environ)


def metadata(runs: Runs, run_id: str) -> dict[str, Any]:
    """The seven keys as the database holds them."""
    found = json.loads(runs.get(run_id).metadata)
    assert isinstance(found, dict)
    return found


def edit_metadata(home: Path, run_id: str, changed: Mapping[str, Any] | str) -> None:
    """Edit the row as any program that can write the file."""
    text = changed if isinstance(changed, str) else json.dumps(changed)
    with sqlite3.connect(home / "actum.db") as connection:
        connection.execute("UPDATE agent_runs SET metadata = ? WHERE run_id = ?", (text, run_id))
    connection.close()
