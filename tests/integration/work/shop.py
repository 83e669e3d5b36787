"""A project with agents, made for a test."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.work.model import RunResult
from common.settings import add_settings
from hostile.jail import sleeps, wake

#: The socket of a container engine, set by tests/containers; without it tools run in sandboxes.
containers: Path | None = None


def make_project(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    kind = RunnerKind.LOCAL if containers is None else RunnerKind.DOCKER
    create(folder, kind, by="user:tester", date="2026-11-16")
    if containers is not None:
        add_settings(folder, f'\n[docker]\nhost = "unix://{containers}"\n')
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


def wake_together(naps: Iterable[str]) -> None:
    """Wait until a `sleep` of each of these lengths runs, then end all of them."""
    naps = list(naps)
    for nap in naps:
        sleeps(nap)
    for nap in naps:
        wake(nap)


def opened(folder: Path) -> Runtime:
    return Runtime.open(folder, pool=False)


def add_program(project: Path, script: str, **more: Any) -> None:
    """A Python program in the project, registered as agent-1."""
    (project / "agents").mkdir(exist_ok=True)
    (project / "bot.py").write_text(textwrap.dedent(script))
    document = {"agent_id": "agent-1", "command": ["python3", "-s", "bot.py"], **more}
    (project / "agents/agent-1.yaml").write_text(yaml.safe_dump(document))


def run_program(
    project: Path, script: str, agent: dict[str, Any] | None = None, **more: Any
) -> RunResult:
    add_program(project, script, **(agent or {}))
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(item(**more))
        if result.status != "success":
            assert rt.state_hash() == before, "it left something"
        return result
