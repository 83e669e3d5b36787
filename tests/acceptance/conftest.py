"""Fresh projects, made as a new user makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
    return make_project(tmp_path / "d")


def add_plain_tool(project: Terminal) -> None:
    """`say`: echo with arguments that are not literal, so that IV-02 judges them."""
    assert project.actum("new", "tool", "say").code == 0
    folder = project.folder / "tools/say"
    tool = yaml.safe_load((folder / "tool.yaml").read_text())
    tool["scope"]["commands"] = ["echo"]
    tool["scope"]["network"] = "off"
    tool["args_schema"] = {
        "type": "object",
        "properties": {"arguments": {"type": "array", "items": {"type": "string"}}},
    }
    (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
    adapter = yaml.safe_load((folder / "adapters/say.yaml").read_text())
    adapter["interface"]["cli"] = {
        "executable": "echo",
        "base_args": [],
        "arg_mapping": {},
        "env_mapping": {},
    }
    (folder / "adapters/say.yaml").write_text(yaml.safe_dump(adapter))
    answer = project.actum("tools", "approve", "say", "--by", "tester", "--evidence", "test")
    assert answer.code == 0, answer.aside
