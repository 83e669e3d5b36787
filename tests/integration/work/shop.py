"""A project with agents, made for a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.engine.project import create


def make_project(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    for name, content in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def add_agent(folder: Path, *scripts: str, number: int = 1) -> None:
    """An agent that runs these shell scripts, one call each."""
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    document = {
        "agent_id": f"agent-{number}",
        "steps": [{"tool": "shell", "stdin": script} for script in scripts],
    }
    (agents / f"agent-{number}.yaml").write_text(yaml.safe_dump(document))


def item(**more: Any) -> dict[str, Any]:
    return {
        "id": "work-item-1",
        "agent_id": "agent-1",
        "description": "A piece of work",
        "dependencies": [],
        **more,
    }


def opened(folder: Path) -> Runtime:
    return Runtime.open(folder, pool=False)
