"""What is refused: before anything runs, with every objection in one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import add_plain_tool, make_project
from .terminal import Answer, Terminal


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    made = make_project(tmp_path_factory.mktemp("refusals") / "d")
    add_plain_tool(made)
    return made


SOUND = """
tool_id: TL-010
inputs:
  command: sh
  stdin: "touch ran"
"""


def ran(project: Terminal) -> bool:
    return (project.folder / "ran").exists()


@pytest.mark.sandbox
def test_the_sound_contract_runs(fresh: Terminal):
    assert fresh.contract(SOUND).code == 0
    assert ran(fresh)


@pytest.mark.req("000-1", "000-32", "000-35", "000-38", "000-41", "000-43")
@pytest.mark.parametrize(
    ("limit", "value", "permitted"),
    [
        ("timeout_ms", "999", "1000..600000"),
        ("timeout_ms", "600001", "1000..600000"),
        ("memory_mb", "63", "64..4096"),
        ("memory_mb", "4097", "64..4096"),
        ("cpu_cores", "true", "1..4"),
        ("cpu_cores", "0", "1..4"),
        ("cpu_cores", "5", "1..4"),
        ("cpu_cores", "1.5", "1..4"),
        ("memory_mb", '"64"', "64..4096"),
        ("processes.max_children", "-1", "0..100"),
        ("processes.max_children", "101", "0..100"),
    ],
)
def test_a_limit_out_of_range_is_rejected_never_clamped(
    project: Terminal, limit: str, value: str, permitted: str
):
    words = ("exec", "shell", "--stdin", "-", "--set", f"sandbox.{limit}={value}")
    answer = project.json(*words, stdin=b"touch ran")
    assert answer.code == 2
    (problem,) = answer.json["error"]["problems"]
    assert problem["field"] == f"sandbox.{limit}"
    assert problem["value"].strip('"') == value.strip('"')
    assert permitted in problem["permitted"]
    assert not ran(project)


@pytest.mark.req("000-1")
def test_every_problem_of_a_contract_is_told_at_once_with_its_place(project: Terminal):
    file = project.folder / "several.yaml"
    file.write_text(
        "tool_id: TL-010\n"
        "surprise: 1\n"
        "inputs: {command: sh, stdin: touch ran, bogus: x}\n"
        "sandbox:\n"
        "  timeout_ms: 999\n"
        "  memory_mb: 4097\n"
        "  cpu_cores: true\n"
    )
    answer = project.actum("exec", "-f", "several.yaml")
    assert answer.code == 2
    assert answer.stdout == b""
    places = [line.split(" ")[0:2] for line in answer.aside.splitlines()]
    assert places == [
        ["several.yaml:2:1:", "surprise:"],
        ["several.yaml:3:41:", "inputs.bogus:"],
        ["several.yaml:5:15:", "sandbox.timeout_ms:"],
        ["several.yaml:6:14:", "sandbox.memory_mb:"],
        ["several.yaml:7:14:", "sandbox.cpu_cores:"],
    ]
    assert "(permitted: integer 1000..600000)" in answer.aside
    assert not ran(project)


@pytest.mark.req("000-1")
def test_a_contract_without_its_command_or_tool_is_rejected(project: Terminal):
    answer = project.contract("inputs: {arguments: []}")
    assert answer.code == 2
    assert {"tool_id", "inputs.command"} <= set(answer.problems)


def test_a_key_given_twice_is_rejected(project: Terminal):
    answer = project.contract(SOUND + "tool_id: TL-011\n")
    assert answer.code == 2
    assert "given before" in answer.problems["tool_id"]
    assert not ran(project)


def test_an_alias_bomb_is_rejected(project: Terminal):
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    answer = project.contract(f"l0: &l0 boom\n{layers}\n")
    assert answer.code == 2
    assert answer.json["error"]["code"] == "CONTRACT_INVALID"


def test_a_file_that_is_not_there_is_named(project: Terminal):
    answer = project.actum("exec", "-f", "nowhere.yaml")
    assert (answer.code, answer.aside.split(":")[0]) == (2, "nowhere.yaml")


@pytest.mark.req("000-56", "000-63")
def test_a_malformed_contract_has_no_receipt_and_a_refused_one_has(fresh: Terminal):
    assert fresh.contract("tool_id: 7").code == 2
    assert fresh.json("receipts", "list").json["receipts"] == []
    answer = fresh.contract("tool_id: TL-010\ninputs: {command: bash, arguments: ['../x']}\n")
    assert answer.code == 3
    (receipt,) = fresh.json("receipts", "list").json["receipts"]
    assert receipt["receipt_id"] == answer.json["receipt_id"]
    assert receipt["outcome"] == "REJECTED"


@pytest.mark.req("000-56", "000-177")
def test_another_command_than_the_adapters_is_blocked(project: Terminal):
    answer = project.contract("tool_id: TL-010\ninputs: {command: bash, stdin: touch ran}\n")
    assert answer.code == 3
    assert answer.json["result"] is None
    assert "IV-01" in [code for code, _ in answer.violations]
    assert not ran(project)


@pytest.mark.req("000-3")
def test_an_unregistered_tool_is_refused_with_a_receipt(project: Terminal):
    for name in ("nosuch", "shel", "TL-01", "tl-010"):
        answer = project.json("exec", name)
        assert (answer.code, answer.violations) == (3, [("TOOL_UNKNOWN", "")])
        assert answer.json["result"] is None
    assert project.actum("verify", answer.json["receipt_id"]).code == 0


def predicate(project: Terminal, answer: Answer) -> dict[str, Any]:
    """What the receipt of an execution signs."""
    shown = project.json("receipts", "show", answer.json["receipt_id"]).json
    signed: dict[str, Any] = shown["statement"]["predicate"]
    return signed


def checks_of(project: Terminal, answer: Answer) -> dict[str, tuple[str, list[str]]]:
    """The input checks of an execution, as its receipt has them."""
    checks = predicate(project, answer)["proof"]["checks"]
    return {each["code"]: (each["result"], sorted(each["names"])) for each in checks}


SHELL_CHARACTERS = ";|&$`(){}[]<>\\\"'!#*?"


@pytest.mark.req("000-58", "000-64")
@pytest.mark.parametrize("character", SHELL_CHARACTERS)
def test_a_shell_character_in_an_argument_is_blocked(project: Terminal, character: str):
    answer = project.json("exec", "say", "--", "plain", f"a{character}b")
    assert answer.code == 3
    assert answer.violations == [("IV-02", "inputs.arguments[1]")]
    assert answer.json["violations"][0]["value"] == f"a{character}b"


@pytest.mark.sandbox
@pytest.mark.req("000-6")
def test_plain_arguments_arrive_one_by_one(project: Terminal):
    answer = project.json("exec", "say", "--", "plain", "words")
    assert answer.json["result"]["stdout"] == "plain words\n"


@pytest.mark.sandbox
@pytest.mark.req("000-6", "000-58", "000-64")
def test_a_literal_argument_arrives_as_it_is_and_is_recorded_as_escaped(project: Terminal):
    words = ("shell", "--stdin", "-", "--", SHELL_CHARACTERS, "$(touch ran)", "two words")
    answer = project.json("exec", *words, stdin=b"printf '%s\\n' \"$@\"")
    expected = f"{SHELL_CHARACTERS}\n$(touch ran)\ntwo words\n"
    assert answer.json["result"]["stdout"] == expected
    assert not ran(project)
    escaped = [f"inputs.arguments[{index}]" for index in range(2)]
    assert checks_of(project, answer)["IV-02"] == ("escaped", escaped)
    plain = project.json("exec", "shell", "--stdin", "-", "--", "plain", stdin=b"true")
    assert checks_of(project, plain)["IV-02"] == ("passed", [])


@pytest.mark.req("000-59", "000-60", "000-65", "000-66", "000-67", "000-68", "000-69")
@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "tools/../../x",
        "..\\x",
        "..\\\\x",
        "/etc/passwd",
        "/var/log",
        "C:\\Windows\\x",
        "c:/windows/x",
    ],
)
def test_a_path_that_escapes_is_refused_wherever_it_is_written(project: Terminal, path: str):
    as_parameter = project.json("exec", "ripgrep", "-p", "pattern=x", "-p", f"path={path}")
    assert as_parameter.code == 3
    assert ("IV-03", "inputs.parameters.path") in as_parameter.violations
    as_file = project.json("exec", "shell", "--file", path, stdin=b"true")
    assert ("IV-03", "inputs.input_files[0]") in as_file.violations


@pytest.mark.req("000-63", "000-175")
def test_every_violation_is_in_one_answer(project: Terminal):
    words = ("say", "--file", "../x", "--cwd", "/etc", "--", "$(id)", "`id`")
    answer = project.json("exec", *words)
    assert answer.code == 3
    assert sorted(answer.violations) == [
        ("IV-02", "inputs.arguments[0]"),
        ("IV-02", "inputs.arguments[1]"),
        ("IV-03", "inputs.input_files[0]"),
        ("IV-03", "inputs.working_directory"),
    ]
    said = project.actum("exec", *words)
    assert said.aside.count("IV-02") == 2
    assert said.aside.count("IV-03") == 2
    assert "nothing ran" in said.aside


@pytest.mark.sandbox
@pytest.mark.req("000-7", "000-61", "000-70", "000-71", "000-72")
def test_dangerous_and_unapproved_variables_never_arrive(project: Terminal):
    given = {
        "LD_PRELOAD": "/tmp/evil.so",
        "LD_LIBRARY_PATH": "/tmp/evil",
        "PATH": "/tmp/evil",
        "UNHEARD_OF": "1",
        "LANG": "de_DE",
    }
    words = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    answer = project.shell("env", *words)
    assert answer.code == 0
    arrived = dict(line.split("=", 1) for line in answer.json["result"]["stdout"].splitlines())
    assert arrived["LANG"] == "de_DE"
    assert "/tmp/evil" not in arrived["PATH"]
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH", "UNHEARD_OF"} & set(arrived)
    stripped = ["LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "UNHEARD_OF"]
    assert checks_of(project, answer)["IV-04"] == ("stripped", stripped)
    receipt = project.json("receipts", "show", answer.json["receipt_id"]).stdout
    assert b"/tmp/evil" not in receipt


@pytest.mark.req("000-62")
def test_too_much_stdin_is_rejected(project: Terminal):
    answer = project.shell(b"#" * (1_048_576 + 1))
    assert answer.code == 3
    assert [code for code, _ in answer.violations] == ["IV-05"]
    assert (answer.json["outcome"], answer.json["result"]) == ("REJECTED", None)
    (record,) = project.json("evidence", "show", answer.json["evidence_ref"]).json["evidence"]
    assert (record["outcome"], record["violations"]) == (
        "REJECTED",
        [{"code": "IV-05", "field": "inputs.stdin"}],
    )
    assert "IV_05" in predicate(project, answer)["reason_codes"]
    largest = project.shell(b"#" * 1_048_576)
    assert largest.json["outcome"] == "SUCCEEDED"
    assert checks_of(project, largest)["IV-05"] == ("passed", [])


@pytest.mark.sandbox
@pytest.mark.req("000-62")
def test_too_much_in_input_files_is_rejected(project: Terminal):
    for name, size in (("half", 5 << 20), ("other", 5 << 20), ("one", 1)):
        with (project.folder / name).open("wb") as file:
            file.truncate(size)
    both = ("exec", "shell", "--file", "half", "--file", "other")
    assert project.json(*both, stdin=b"true").json["outcome"] == "SUCCEEDED"
    answer = project.json(*both, "--file", "one", stdin=b"true")
    assert (answer.code, answer.json["result"]) == (3, None)
    assert {code for code, _ in answer.violations} == {"IV-05"}
    assert "IV_05" in predicate(project, answer)["reason_codes"]


@pytest.mark.sandbox
@pytest.mark.req("000-4")
def test_an_unknown_adapter_and_one_of_another_tool_are_refused(project: Terminal):
    search = ("exec", "ripgrep", "-p", "pattern=x", "-p", "path=actum.toml", "--set")
    assert project.json(*search, 'adapter_id="ADP-001"').json["adapter_id"] == "ADP-001"
    for adapter, code in (("ADP-999", "ADAPTER_UNKNOWN"), ("ADP-011", "ADAPTER_MISMATCH")):
        answer = project.json(*search, f'adapter_id="{adapter}"')
        assert (answer.code, answer.violations) == (3, [(code, "")])
        assert answer.json["result"] is None
        assert predicate(project, answer)["outcome"] == "REJECTED"


def every_file(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.sandbox
def test_a_changed_tool_folder_is_refused_until_it_is_approved_again(fresh: Terminal):
    folder = fresh.folder / "tools/shell"
    for name in every_file(folder):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(before + b"\n")
        answer = fresh.shell("touch ran")
        assert (answer.code, answer.violations) == (3, [("TOOL_CHANGED", "")]), name
        assert name in answer.json["violations"][0]["message"]
        (folder / name).write_bytes(before)
    assert not ran(fresh)
    tool = yaml.safe_load((folder / "tool.yaml").read_text())
    assert tool["name"] == "shell"
    (folder / "README.md").write_text("Changed, and looked at.\n")
    assert fresh.shell("true").code == 3
    decision = ("--by", "reviewer", "--evidence", "review-7")
    assert fresh.actum("tools", "approve", "shell", *decision).code == 0
    assert fresh.shell("true").code == 0
    history = fresh.json("tools", "history", "shell").json["history"]
    assert [(each["by"], each["evidence"]) for each in history][-1] == ("reviewer", "review-7")
    assert fresh.actum("tools", "block", "shell", *decision).code == 0
    assert fresh.shell("true").violations == [("TOOL_NOT_ACTIVE", "")]


def test_the_docker_runner_is_the_default_and_nothing_else_takes_its_place(tmp_path: Path):
    answer = Terminal(tmp_path).actum("init", "d")
    assert answer.code == 3
    assert "actum init --runner local" in answer.aside
    assert [*tmp_path.iterdir()] == []
    assert Terminal(tmp_path).actum("init", "d", "--runner", "docker").code == 0
    project = Terminal(tmp_path / "d")
    refused = project.shell("touch ran")
    assert (refused.code, refused.violations) == (3, [("RUNNER_UNAVAILABLE", "")])
    assert not ran(project)
