"""Tools that are programs of the system: their ids, and the environment that they start in."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from .conftest import add_program, change
from .terminal import Answer, Terminal

DECISION = ("--by", "tester", "--evidence", "test")


def environment(answer: Answer) -> dict[str, str]:
    assert answer.json["outcome"] == "SUCCEEDED", answer.stdout
    lines = answer.json["result"]["stdout"].splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.sandbox
@pytest.mark.req("000-72")
def test_path_is_the_minimal_or_the_scoped_one_and_never_the_callers(fresh: Terminal):
    def scoped(tool: dict[str, Any]) -> None:
        tool["path"] = ["/bin", "/usr/bin"]

    add_program(fresh, "minimal", "env")
    add_program(fresh, "scoped", "env", scoped)
    given = ("--env", "PATH=/tmp/evil")
    found = {
        tool: {environment(fresh.json("exec", tool, *words))["PATH"] for words in ((), given)}
        for tool in ("minimal", "scoped")
    }
    assert found["scoped"] == {"/bin:/usr/bin"}
    (minimal,) = found["minimal"]
    assert minimal != "/bin:/usr/bin"
    assert set(minimal.split(":")) <= {"/usr/local/bin", "/usr/bin", "/bin"}


@pytest.mark.sandbox
@pytest.mark.req("000-98")
def test_env_mapping_turns_a_parameter_into_a_variable_of_the_tool(fresh: Terminal):
    def coloured(tool: dict[str, Any]) -> None:
        names = {"colour": {"type": "string"}, "size": {"type": "integer"}}
        tool["args_schema"] = {"type": "object", "properties": names}
        tool["environment"] = ["LANG"]

    mapping = {"colour": "SHOW_COLOUR", "size": "SHOW_SIZE"}
    add_program(fresh, "mapped", "env", coloured, env_mapping=mapping)
    both = environment(fresh.json("exec", "mapped", "-p", "colour=-red", "-p", "size=7"))
    assert (both["SHOW_COLOUR"], both["SHOW_SIZE"]) == ("-red", "7")
    one = environment(fresh.json("exec", "mapped", "-p", "colour=blue"))
    assert one["SHOW_COLOUR"] == "blue"
    assert "SHOW_SIZE" not in one


@pytest.mark.sandbox
@pytest.mark.req("000-5", "000-95")
def test_the_command_is_the_program_that_runs_and_no_other_that_is_allowed(fresh: Terminal):
    def two(tool: dict[str, Any]) -> None:
        tool["scope"]["commands"] = ["echo", "true"]

    add_program(fresh, "talk", "echo", two)
    words = ("exec", "talk", "--set")
    assert fresh.json(*words, 'inputs.command="echo"', "--", "x").json["result"]["stdout"] == "x\n"
    for other in ("true", "ls"):
        answer = fresh.json(*words, f'inputs.command="{other}"', "--", "x")
        assert (answer.code, answer.violations) == (3, [("IV-01", "inputs.command")])
        assert answer.json["result"] is None
    empty = fresh.json(*words, 'inputs.command=""')
    assert (empty.code, set(empty.problems)) == (2, {"inputs.command"})


@pytest.mark.sandbox
@pytest.mark.req("000-96", "000-97")
def test_base_arguments_come_first_and_templates_turn_parameters_into_arguments(fresh: Terminal):
    def worded(tool: dict[str, Any]) -> None:
        kinds = {"word": "string", "loud": "boolean", "rest": "string"}
        names = {name: {"type": kind} for name, kind in kinds.items()}
        tool["args_schema"] = {"type": "object", "properties": names}

    mapping = {"word": "--word={value}", "loud": "-l", "rest": "{value}"}
    base = ["%s|", "base", "two words"]
    add_program(fresh, "shape", "printf", worded, base_args=base, arg_mapping=mapping)

    def arguments(*words: str) -> list[str]:
        answer = fresh.json("exec", "shape", *words)
        assert answer.json["outcome"] == "SUCCEEDED", answer.stdout
        found: list[str] = answer.json["result"]["stdout"].split("|")[:-1]
        return found

    assert arguments() == ["base", "two words"]
    both = arguments("-p", "word=a b", "-p", "loud=true")
    assert both[:2] == ["base", "two words"]
    assert sorted(both[2:]) == ["--word=a b", "-l"]
    assert arguments("-p", "rest=c", "-p", "loud=false")[-1] == "c"
    assert "-l" not in arguments("-p", "rest=c", "-p", "loud=false")


WRONG = {
    "no name": ({"name": None}, "name", "000-90"),
    "a version that is not semver": ({"version": "1.0"}, "version", "000-91"),
    "a version with a letter": ({"version": "v1.0.0"}, "version", "000-91"),
    "no tool": ({"tool_id": None}, "tool_id", "000-92"),
    "another tool": ({"tool_id": "TL-010"}, "tool_id", "000-92"),
    "an unknown type": ({"type": "grpc"}, "type", "000-93"),
    "a type without its block": ({"type": "api"}, "interface.api", "000-94"),
}


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param(fields, field, marks=pytest.mark.req(row), id=name)
        for name, (fields, field, row) in WRONG.items()
    ],
)
def test_an_adapter_is_refused_that_has(fresh: Terminal, fields: dict[str, Any], field: str):
    add_program(fresh, "plain", "true")
    assert fresh.json("exec", "plain").json["outcome"] == "SUCCEEDED"

    def spoil(adapter: dict[str, Any]) -> None:
        for name, value in fields.items():
            if value is None:
                del adapter[name]
            else:
                adapter[name] = value

    change(fresh.folder / "tools/plain/adapters/plain.yaml", spoil)
    assert f" {field}: " in refused(fresh, "plain")


def refused(project: Terminal, tool: str) -> str:
    """What is wrong with the folder of `tool`: it cannot be approved, and does not run."""
    assert project.json("exec", tool).json["outcome"] == "REJECTED"
    assert project.actum("tools", "propose", f"tools/{tool}").code != 0
    answer = project.actum("tools", "approve", tool, *DECISION)
    assert answer.code in (2, 3)
    return answer.aside


@pytest.mark.sandbox
@pytest.mark.req("000-89")
def test_an_adapter_id_is_mandatory_and_unique(fresh: Terminal):
    add_program(fresh, "first", "true")
    add_program(fresh, "second", "true")
    for tool in ("first", "second"):
        assert fresh.json("exec", tool).json["outcome"] == "SUCCEEDED"
    folder = fresh.folder / "tools/second/adapters"
    sound = (folder / "second.yaml").read_text()

    def taken(adapter: dict[str, Any]) -> None:
        adapter["adapter_id"] = fresh.json("exec", "first").json["adapter_id"]

    change(folder / "second.yaml", taken)
    assert "adapter_id" in refused(fresh, "second")
    change(folder / "second.yaml", lambda adapter: adapter.pop("adapter_id"))
    assert "adapter_id" in refused(fresh, "second")
    (folder / "second.yaml").write_text(sound)
    shutil.copy(folder / "second.yaml", folder / "twin.yaml")
    change(folder / "twin.yaml", lambda adapter: adapter.update(name="twin"))
    assert "adapter_id" in refused(fresh, "second")
    (folder / "twin.yaml").unlink()
    assert fresh.json("exec", "second").json["outcome"] == "SUCCEEDED"


@pytest.mark.sandbox
@pytest.mark.req("000-89")
def test_two_tools_of_one_id_are_refused(fresh: Terminal):
    add_program(fresh, "first", "true")
    add_program(fresh, "second", "true")
    tool_id = fresh.json("exec", "first").json["tool_id"]

    def same(document: dict[str, Any]) -> None:
        document["tool_id"] = tool_id

    folder = fresh.folder / "tools/second"
    change(folder / "tool.yaml", same)
    change(folder / "adapters/second.yaml", same)
    refused(fresh, "second")
    proposed = fresh.actum("tools", "propose", "tools/second")
    assert " tool_id: " in proposed.text + proposed.aside
    assert fresh.json("exec", "first").json["outcome"] == "SUCCEEDED"
