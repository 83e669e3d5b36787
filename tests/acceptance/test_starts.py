"""What `actum new` writes, and what a tool without files says when it is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import add_program, change
from .terminal import Terminal


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    folder = tmp_path_factory.mktemp("starts") / "d"
    assert Terminal(folder.parent).actum("init", str(folder), "--runner", "local").code == 0
    opened = Terminal(folder)
    assert opened.actum("new", "tool", "lines").code == 0
    return opened


#: A field that is empty: its line, with what precedes a comment.
_EMPTY = re.compile(r"^ *([a-z_]+): *(?:\[\]|\{\}|\"\"|null)? *(?:#.*)?$")


def _empty_fields(text: str) -> Iterator[tuple[int, str, str]]:
    """Number, name and text of each line with an empty field; a section is not empty."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _EMPTY.match(line)
        following = lines[number + 1] if number + 1 < len(lines) else ""
        indent = len(line) - len(line.lstrip())
        if found and not following.startswith(" " * (indent + 1)):
            yield number, found[1], line


@pytest.mark.parametrize("name", ["tool.yaml", "adapters/lines.yaml"])
def test_an_empty_field_is_marked_exactly_if_it_is_required(started: Terminal, name: str):
    file = started.folder / "tools/lines" / name
    text = file.read_text()
    required, marked = set(), set()
    for number, field, line in _empty_fields(text):
        lines = text.splitlines()
        file.write_text("\n".join([*lines[:number], *lines[number + 1 :], ""]))
        if started.actum("tools", "propose", "tools/lines").code != 0:
            required.add(field)
        if "# required" in line:
            marked.add(field)
        file.write_text(text)
    assert required
    assert marked == required


def test_the_refusal_of_a_tool_without_files_names_a_remedy_that_works(tmp_path: Path):
    folder = tmp_path / "d"
    assert Terminal(tmp_path).actum("init", str(folder), "--runner", "local").code == 0
    opened = Terminal(folder)

    def nothing(tool: dict[str, Any]) -> None:
        tool["scope"]["filesystem"] = []
        tool["permissions"]["filesystem"] = {"read": [], "write": []}

    add_program(opened, "who", "id", nothing)
    refused = opened.json("exec", "who")
    assert (refused.code, refused.violations) == (3, [("IV-03", "inputs.working_directory")])
    message = refused.json["violations"][0]["message"]
    assert "--cwd scratch:" in message
    assert "scope.filesystem" in message

    assert opened.actum("exec", "who", "--cwd", "scratch:").code == 0

    def one(tool: dict[str, Any]) -> None:
        tool["scope"]["filesystem"] = ["."]
        tool["permissions"]["filesystem"] = {"read": ["."], "write": []}

    change(folder / "tools/who/tool.yaml", one)
    assert opened.actum("tools", "approve", "who", "--by", "a", "--evidence", "b").code == 0
    assert opened.actum("exec", "who").code == 0


def test_filled_lists_what_the_requester_left_out_and_the_receipt_has_the_limits(started: Terminal):
    result = started.shell("true", "--purpose", "test")
    evidence = started.json("evidence", "show", result.json["receipt_id"]).json["evidence"][0]
    assert evidence["filled"] == result.json["filled"]
    assert set(evidence["filled"]) <= {
        "execution_id",
        "adapter_id",
        "inputs.working_directory",
        "metadata.requested_by",
        "metadata.requested_at",
        "metadata.purpose",
    }
    assert "execution_id" in evidence["filled"]
    assert "metadata.purpose" not in evidence["filled"]
    receipt = started.json("receipts", "show", result.json["receipt_id"]).json
    policy = receipt["statement"]["predicate"]["policy"]["document"]
    assert policy["limits"]["timeout_ms"] == 30_000
