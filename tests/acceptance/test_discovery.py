"""Discovery hides what may not be called, and describes the rest at the right level."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest
import yaml

from .conftest import add_plain_tool
from .terminal import Terminal


def ids(project: Terminal, *words: str) -> list[str]:
    return [each["adapter_id"] for each in project.json("adapters", *words).json["adapters"]]


def new_adapter_id(project: Terminal) -> str:
    text = (project.folder / "tools/say/adapters/say.yaml").read_text()
    found: str = yaml.safe_load(text)["adapter_id"]
    return found


def test_a_tool_is_found_exactly_while_it_may_be_called(fresh: Terminal) -> None:
    assert fresh.actum("new", "tool", "say").code == 0
    adapter_id = new_adapter_id(fresh)
    assert adapter_id not in ids(fresh, "list")
    assert adapter_id not in ids(fresh, "search", "say")
    assert adapter_id in ids(fresh, "list", "--all")
    aside = fresh.actum("adapters", "show", adapter_id).aside
    assert "may not be called" in aside and "approve" in aside


def test_an_adapter_of_an_invalid_tool_is_not_said_to_be_missing(fresh: Terminal) -> None:
    add_plain_tool(fresh)
    adapter_id = new_adapter_id(fresh)
    adapter = fresh.folder / "tools/say/adapters/say.yaml"
    adapter.write_text(adapter.read_text() + "colour: blue\n")
    shown = fresh.actum("adapters", "show", adapter_id)
    assert shown.code == 3
    assert "colour" in shown.aside
    assert "actum tools list" in shown.aside
    assert "colour" in fresh.actum("tools", "list").aside
    missing = fresh.actum("adapters", "show", "ADP-999").aside
    assert "ADP-999" in missing


def test_search_asks_what_an_execution_asks(fresh: Terminal) -> None:
    add_plain_tool(fresh)
    adapter_id = new_adapter_id(fresh)
    assert adapter_id in ids(fresh, "list")
    assert ids(fresh, "search", "say") == [adapter_id]
    # Changed after its approval: level 0 is still warm, yet a search does not find it.
    readme = fresh.folder / "tools/say/README.md"
    before = readme.read_text() if readme.exists() else ""
    readme.write_text(before + "changed\n")
    assert fresh.json("exec", "say", "--", "x").json["reason_codes"] == ["TOOL_CHANGED"]
    assert ids(fresh, "search", "say") == []
    readme.write_text(before)
    if not before:
        readme.unlink()
    assert ids(fresh, "search", "say") == [adapter_id]
    words = ("--by", "t", "--evidence", "e")
    assert fresh.actum("tools", "block", "say", *words).code == 0
    assert ids(fresh, "search", "say") == []
    assert adapter_id not in ids(fresh, "list")


def test_a_tool_whose_runner_is_not_enabled_is_not_found(fresh: Terminal) -> None:
    assert "ADP-001" in ids(fresh, "list")
    settings = fresh.folder / "actum.toml"
    text = settings.read_text()
    assert "local = true" in text
    settings.write_text(text.replace("local = true", "local = false"))
    assert ids(fresh, "list") == []
    assert ids(fresh, "search", "text") == []


def test_each_level_says_about_what_it_costs(project: Terminal) -> None:
    told = project.json("adapters", "show", "ADP-001", "--tokens").json["tokens"]
    costs = [told[str(level)] for level in range(4)]
    assert all(less < more for less, more in pairwise(costs))
    level_0 = project.json("adapters", "show", "ADP-001", "--level", "0").json
    compact = json.dumps(level_0, separators=(",", ":"))
    assert costs[0] == -(-len(compact) // 4)
    listed = project.json("adapters", "list").json
    assert listed["tokens"] >= costs[0]


@pytest.mark.req("000-169")
def test_a_refresh_reads_the_tools_again(fresh: Terminal) -> None:
    before = ids(fresh, "list")
    cache = fresh.folder / ".actum/cache/tools.json"
    kept = json.loads(cache.read_text())
    kept["values"]["TL-003"]["adapters"][0][1] = "an-old-name"
    cache.write_text(json.dumps(kept))
    names = [each["name"] for each in fresh.json("adapters", "list").json["adapters"]]
    assert "an-old-name" in names  # control: the cached one is shown
    assert fresh.json("adapters", "refresh").json == {"adapters": len(before)}
    names = [each["name"] for each in fresh.json("adapters", "list").json["adapters"]]
    assert "an-old-name" not in names and "ripgrep-search" in names


@pytest.mark.sandbox
@pytest.mark.req("000-157", "000-168")
def test_a_second_execution_in_another_process_parses_no_document(fresh: Terminal) -> None:
    words = ("exec", "ripgrep", "-p", "pattern=x", "-p", "path=.")
    assert fresh.actum(*words).code == 0
    command = [sys.executable, "-X", "importtime", "-m", "actum.doors.cli.main", *words]
    done = subprocess.run(command, cwd=fresh.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "actum.registry.registry" in loaded
    assert "yaml" not in loaded
