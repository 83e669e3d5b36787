"""Where a call gets less than its request names, the result and the evidence say so."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import add_program
from .terminal import Answer, Terminal

pytestmark = pytest.mark.sandbox


def narrowed(project: Terminal, answer: Answer) -> list[dict[str, str]]:
    found: list[dict[str, str]] = answer.json["narrowed"]
    (record,) = project.json("evidence", "show", answer.json["receipt_id"]).json["evidence"]
    assert record["narrowed"] == found
    return found


def short(tool: dict[str, Any]) -> None:
    tool["permissions"]["execution"].update(max_duration_sec=3, max_memory_mb=128, max_cpu_cores=2)


def test_a_limit_that_the_tools_ceiling_lowers_says_from_what_to_what(fresh: Terminal):
    add_program(fresh, "brief", "sleep", short)
    asked = ("--timeout", "20s", "--memory", "256M", "--set", "sandbox.cpu_cores=4")
    answer = fresh.json("exec", "brief", *asked, "--", "60")
    assert answer.json["outcome"] == "TIMED_OUT"
    duration_ms = answer.json["result"]["duration_ms"]
    assert 3_000 <= duration_ms < 6_000
    by = "permissions.execution.{} of the tool"
    found = [
        (each["field"], each["asked"], each["given"], each["by"])
        for each in narrowed(fresh, answer)
    ]
    assert found == [
        ("sandbox.timeout_ms", "20000", "3000", by.format("max_duration_sec")),
        ("sandbox.memory_mb", "256", "128", by.format("max_memory_mb")),
        ("sandbox.cpu_cores", "4", "2", by.format("max_cpu_cores")),
    ]
    foreseen = fresh.json("check", "brief", *asked, "--", "60").json
    assert foreseen["narrowed"] == answer.json["narrowed"]
    said = fresh.actum("check", "brief", *asked, "--", "0").text
    assert "sandbox.memory_mb is narrowed from 256 to 128" in said
    said = fresh.actum("exec", "brief", *asked, "--", "0").aside
    assert "sandbox.timeout_ms is narrowed from 20000 to 3000" in said
    for words in ((), ("--timeout", "2s", "--memory", "128M")):
        assert narrowed(fresh, fresh.json("exec", "brief", *words, "--", "0")) == []


@pytest.fixture
def depending(fresh: Terminal) -> Terminal:
    """A project with a dependency outside, and a tool `both` whose scope has it."""
    outside = fresh.folder.parent / "deps"
    outside.mkdir()
    (outside / "one").write_text("dependency\n")
    with (fresh.folder / "actum.toml").open("a") as file:
        file.write(f'\n[filesystem]\ndependencies = ["{outside}"]\n')
    assert fresh.actum("config", "approve", "--by", "tester").code == 0

    def wide(tool: dict[str, Any]) -> None:
        tool["scope"].update(data_access="write", filesystem=[".", str(outside)])
        for right in ("read", "write"):
            tool["permissions"]["filesystem"][right] = [".", str(outside)]

    add_program(fresh, "both", "sh", wide)
    return fresh


READ = "cat ../deps/one || echo none"
WRITE = "{ echo x > ../deps/one; } 2>/dev/null || { echo x > ../deps/new; } 2>/dev/null || echo no"


def ran(project: Terminal, tool: str, script: str, level: str) -> Answer:
    words = ("--stdin", "-", "--set", f'sandbox.filesystem.level="{level}"')
    answer = project.json("exec", tool, *words, stdin=script.encode())
    assert answer.json["outcome"] == "SUCCEEDED", answer.stdout
    return answer


@pytest.mark.req("000-46")
def test_extended_reads_dependencies_outside_the_project_and_never_writes_them(
    depending: Terminal,
):
    assert ran(depending, "both", READ, "extended").json["result"]["stdout"] == "dependency\n"
    assert ran(depending, "both", READ, "standard").json["result"]["stdout"] == "none\n"
    assert ran(depending, "both", WRITE, "extended").json["result"]["stdout"] == "no\n"
    outside = depending.folder.parent / "deps"
    assert [each.name for each in outside.iterdir()] == ["one"]
    assert (outside / "one").read_text() == "dependency\n"
    inside = ran(depending, "both", "echo x > mine; mkdir output; echo x > output/f", "extended")
    assert inside.json["narrowed"] == []
    assert (depending.folder / "output" / "f").read_text() == "x\n"


@pytest.mark.req("000-46")
def test_a_level_that_the_tools_scope_narrows_says_so(depending: Terminal):
    answer = ran(depending, "shell", READ, "extended")
    assert answer.json["result"]["stdout"] == "none\n"
    outside = str(depending.folder.parent / "deps")
    assert narrowed(depending, answer) == [
        {
            "field": "sandbox.filesystem.read",
            "asked": outside,
            "given": "",
            "by": "scope.filesystem of the tool",
        }
    ]
    assert narrowed(depending, ran(depending, "shell", READ, "standard")) == []
    searched = depending.json(
        *("exec", "ripgrep", "-p", "pattern=x", "-p", "path=actum.toml"),
        *("--set", 'sandbox.filesystem.level="standard"'),
    )
    (only,) = narrowed(depending, searched)
    assert (only["field"], only["by"]) == (
        "sandbox.filesystem.write",
        "permissions.filesystem.write of the tool",
    )
