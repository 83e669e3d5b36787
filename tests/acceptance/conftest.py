"""Fresh projects. One per file is made by `actum init`, as a new user makes it; where each test has
one, by the call that `actum init` makes."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum.contract.model import RunnerKind
from actum.contract.timestamps import utc_text
from actum.project import create
from actum.settings import login_of

from .terminal import Terminal


def make_project(folder: Path) -> Terminal:
    outside = Terminal(folder.parent)
    answer = outside.actum("init", str(folder), "--runner", "local")
    assert answer.code == 0, answer.aside
    return Terminal(folder)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """One project for a file of tests that do not change its tools or its records."""
    return make_project(tmp_path_factory.mktemp("acceptance") / "d")


@pytest.fixture
def fresh(tmp_path: Path) -> Terminal:
    folder = tmp_path / "d"
    login, date = login_of(os.environ), utc_text(datetime.now(UTC))
    create(folder.resolve(), RunnerKind.LOCAL, by=f"user:{login}", date=date)
    return Terminal(folder)


def change(file: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit a YAML file in place."""
    document = yaml.safe_load(file.read_text())
    edit(document)
    file.write_text(yaml.safe_dump(document))


def approve(project: Terminal, name: str) -> None:
    answer = project.actum("tools", "approve", name, "--by", "tester", "--evidence", "test")
    assert answer.code == 0, answer.aside


def add_program(
    project: Terminal,
    name: str,
    program: str,
    edit: Callable[[dict[str, Any]], None] = lambda _tool: None,
    **interface: Any,
) -> None:
    """A tool that is a program of the system, with a plain adapter; `edit` changes its tool.yaml
    before it is approved, `interface` the adapter's `interface.cli`."""
    assert project.actum("new", "tool", name).code == 0
    folder = project.folder / "tools" / name

    def describe(tool: dict[str, Any]) -> None:
        tool["scope"]["commands"] = [program]
        tool["scope"]["network"] = "off"
        tool["args_schema"] = {
            "type": "object",
            "properties": {"arguments": {"type": "array", "items": {"type": "string"}}},
        }
        edit(tool)

    def call(adapter: dict[str, Any]) -> None:
        adapter["interface"]["cli"] = {
            "executable": program,
            "base_args": [],
            "arg_mapping": {},
            "env_mapping": {},
            **interface,
        }

    change(folder / "tool.yaml", describe)
    change(folder / f"adapters/{name}.yaml", call)
    approve(project, name)


def add_plain_tool(project: Terminal) -> None:
    """`say`: echo with arguments that are not literal, so that IV-02 judges them."""
    add_program(project, "say", "echo")
