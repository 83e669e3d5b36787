"""The words themselves: commands, options, exit codes, starting files, examples."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum import native
from actum.contract.outcome import Outcome
from actum.contract.parse import parse_contract
from actum.doors.cli import exit_codes
from actum.doors.cli.main import COMMANDS
from actum.doors.cli.save import contract_yaml

from .terminal import COMMAND, Terminal

ROOT = Path(__file__).resolve().parents[2]


def test_every_outcome_has_an_exit_code_of_the_table():
    assert set(exit_codes.OF_OUTCOME) == set(Outcome)
    assert set(exit_codes.OF_OUTCOME.values()) <= {0, 1, 3, 4, 5, 70, 130}
    successes = [outcome for outcome, code in exit_codes.OF_OUTCOME.items() if code == 0]
    assert successes == [Outcome.SUCCEEDED]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_takes_the_common_options(tmp_path: Path, name: str):
    answer = Terminal(tmp_path).actum(name, "--help")
    assert answer.code == 0
    for option in ("--home", "--session", "--json"):
        assert option in answer.text


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], ["actum.runtime", "actum.contract.parse", "cryptography", "yaml"]),
        (["schema"], ["actum.runtime", "cryptography", "yaml", "sqlite3"]),
        (
            ["exec", "--help"],
            ["actum.runtime", "cryptography", "yaml", "actum.doors.cli.tools_command"],
        ),
    ],
)
def test_a_command_imports_only_what_it_needs(words: list[str], absent: list[str]):
    program = (
        "import sys, json\nfrom actum.doors.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: sys.stderr.write(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stderr))
    assert "click" in loaded
    assert not loaded & set(absent)


def test_version_and_unknown_words(tmp_path: Path):
    terminal = Terminal(tmp_path)
    assert terminal.actum("--version").text.startswith("actum ")
    unknown = terminal.actum("exce", "shell")
    assert unknown.code == 2
    assert "'exec'" in unknown.aside


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("exec",), 2, "USAGE"),
        (("exec", "shell", "--no-such-option"), 2, "USAGE"),
        (("exec", "shell", "--set", "sandbox.memory_mb=lots"), 2, "USAGE"),
        (("exec", "shell", "--timeout", "soon"), 2, "CONTRACT_INVALID"),
        (("exec", "shell", "-p", "novalue"), 2, "USAGE"),
        (("exec", "-f", "x.yaml", "shell"), 2, "USAGE"),
        (("receipts", "show", "nothing"), 3, "RECEIPT_UNKNOWN"),
        (("verify", "--home", "/nowhere"), 3, "NO_PROJECT"),
    ],
)
def test_an_error_is_one_json_document_too(
    project: Terminal, words: tuple[str, ...], code: int, error: str
):
    answer = project.actum(*words, "--json")
    assert answer.code == code
    assert answer.json["error"]["code"] == error
    assert answer.json["error"]["message"]
    assert answer.stderr == b""
    plain = project.actum(*words)
    assert (plain.code, plain.stdout) == (code, b"")
    assert plain.stderr


def test_a_value_of_set_that_is_not_json_is_named(project: Terminal):
    answer = project.actum("exec", "shell", "--set", "sandbox.memory_mb=lots")
    assert "sandbox.memory_mb" in answer.aside
    assert "'lots'" in answer.aside


def test_our_own_failure_is_70_without_a_traceback(project: Terminal, tmp_path: Path):
    broken = shutil.copytree(project.folder, tmp_path / "broken")
    (broken / ".actum/actum.db").write_bytes(b"no database at all" * 100)
    for extra in (broken / ".actum").glob("actum.db-*"):
        extra.unlink()
    answer = Terminal(broken).actum("receipts", "list")
    assert answer.code == 70
    assert "Traceback" not in answer.aside


@pytest.mark.sandbox
def test_global_options_are_taken_before_and_after_the_command(project: Terminal, tmp_path: Path):
    elsewhere = Terminal(tmp_path)
    home = ("--home", str(project.folder))
    call = ("exec", "shell", "--cwd", str(project.folder))
    before = elsewhere.actum(*home, "--json", "--session", "mine", *call, stdin=b"true")
    after = elsewhere.actum(*call, *home, "--json", "--session", "mine", stdin=b"true")
    assert (before.json["outcome"], before.json["session"]) == ("SUCCEEDED", "mine")
    assert (after.json["outcome"], after.json["session"]) == ("SUCCEEDED", "mine")


def test_init_says_what_it_made_and_a_second_time_changes_nothing(tmp_path: Path):
    terminal = Terminal(tmp_path)
    first = terminal.actum("init", "d", "--runner", "local")
    assert "Enabled runners: local" in first.text
    assert "actum exec shell" in first.text.splitlines()[-1]
    lock = (tmp_path / "d/tools.lock").read_bytes()
    (tmp_path / "d/actum.toml").write_text("[runners]\nlocal = true\n")
    second = terminal.json("init", "d", "--runner", "local")
    assert second.json["made"] == []
    assert (tmp_path / "d/tools.lock").read_bytes() == lock
    assert (tmp_path / "d/actum.toml").read_text() == "[runners]\nlocal = true\n"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("words", "program", "output"),
    [((), b"echo hello", b"hello\n"), (("python",), b"print(6 * 7)", b"42\n")],
)
def test_try_needs_no_project_and_leaves_none(
    tmp_path: Path, words: tuple[str, ...], program: bytes, output: bytes
):
    done = subprocess.run(
        [*COMMAND, "try", *words],
        input=program,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, output)
    assert b"receipt verified" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sandbox
@pytest.mark.parametrize(("words", "output"), [((), "hello\n"), (("python",), "42\n")])
def test_try_without_a_program_names_a_command_that_runs(
    tmp_path: Path, words: tuple[str, ...], output: str
):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    how = {"capture_output": True, "text": True, "env": environment, "cwd": tmp_path, "timeout": 60}
    refused = subprocess.run([*COMMAND, "try", *words], stdin=subprocess.DEVNULL, **how)
    assert (refused.returncode, refused.stdout) == (2, "")
    _, command, _ = refused.stderr.split("`")
    ran = subprocess.run(["sh", "-c", command.replace("actum", shlex.join(COMMAND))], **how)
    assert (ran.returncode, ran.stdout) == (0, output)


@pytest.mark.sandbox
def test_check_says_what_would_happen_and_does_not_do_it(project: Terminal):
    allowed = project.json("check", "shell", "--stdin", "-", "--memory", "128M", stdin=b"touch ran")
    assert (allowed.code, allowed.json["verdict"]) == (0, "ALLOWED")
    assert allowed.json["policy"]["limits"]["memory_mb"] == 128
    assert {"timeout_ms", "memory_mb", "network"} <= {
        row["limit"] for row in allowed.json["enforcement"]
    }
    refused = project.json("check", "ripgrep", "-p", "pattern=x", "-p", "path=/etc")
    assert (refused.code, refused.json["verdict"]) == (3, "REFUSED")
    assert [each["code"] for each in refused.json["violations"]] == ["IV-03"]
    assert project.json("check", "shell", "--set", "sandbox.timeout_ms=1").code == 2
    assert not (project.folder / "ran").exists()


def test_doctor_lists_every_limit_of_every_runner(tmp_path: Path):
    answer = Terminal(tmp_path).json("doctor")
    runners = {each["runner"]: each for each in answer.json["runners"]}
    assert set(runners) == {"local", "docker", "remote"}
    usable = runners["local"]["usable"] or runners["docker"]["usable"]
    assert answer.code == (0 if usable else 1)
    assert "memory_mb" in [each["limit"] for each in runners["local"]["limits"]]
    assert runners["docker"]["usable"] or "--runner local" in runners["docker"]["remedy"]
    assert "--runner local" in runners["remote"]["remedy"]
    assert answer.json["build"] == {
        "init_sha256": native.sha256(native.INIT),
        "determinism_sha256": native.sha256(native.DETERMINISM),
    }


def test_doctor_advises_git_to_obey_no_repository_that_a_tool_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    settings.write_text("")
    remedy = "git config --global safe.bareRepository explicit"
    first = Terminal(tmp_path).actum("doctor")
    assert remedy in first.text
    assert len(Terminal(tmp_path).json("doctor").json["advice"]) == 1
    subprocess.run(remedy.split(), check=True)
    then = Terminal(tmp_path).actum("doctor")
    assert remedy not in then.text
    assert then.code == first.code
    assert Terminal(tmp_path).json("doctor").json["advice"] == []


@pytest.mark.sandbox
def test_a_saved_contract_runs_again_and_means_the_same(project: Terminal):
    words = ("exec", "shell", "--stdin", "-", "--env", "LANG=C", "--timeout", "5s")
    arguments = ("--", "NO", "0o14", "1e3", "", "a: b", "# no comment", "null")
    script = b'# first\nfor each in "$@"; do echo "[$each]"; done\n'
    saved = project.actum(*words, "--save", "saved.yaml", *arguments, stdin=script)
    assert (saved.code, saved.stdout) == (0, b"")
    expected = "".join(f"[{each}]\n" for each in arguments[1:])
    for _ in range(2):
        answer = project.json("exec", "-f", "saved.yaml")
        assert answer.json["result"]["stdout"] == expected
        assert not answer.json["replayed"]


_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
) | st.sampled_from(
    ["yes", "~", "0x1F", "0o14", "1_000", ".inf", "2026-01-01", "null", "<<", "é\u2028\t", " x"]
)
_LINES = st.lists(st.text(" \ta#:-'\"|>\\é", max_size=8), max_size=6).map("\n".join)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**52), 2**52) | _TEXT | _LINES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


_NAMES = _TEXT.filter(bool)


@given(parameters=st.dictionaries(_NAMES, _VALUES, max_size=4), stdin=_TEXT | _LINES)
@settings(deadline=None)
def test_what_is_saved_reads_back_as_the_same_document(parameters: dict[str, Any], stdin: str):
    inputs = {"command": "sh", "parameters": parameters, "stdin": stdin}
    document = {"tool_id": "TL-010", "inputs": inputs}
    assert parse_contract(contract_yaml(document)).document == document


@pytest.mark.sandbox
def test_the_starting_files_pass_their_own_validation(fresh: Terminal):
    assert fresh.actum("new", "contract").code == 0
    assert fresh.actum("exec", "-f", "contract.yaml").stdout.startswith(b"hello from Linux")
    assert fresh.actum("new", "tool", "counter").code == 0
    assert fresh.actum("new", "adapter", "counter", "other").code == 0
    assert fresh.actum("tools", "propose", "tools/counter").code == 0
    assert fresh.json("exec", "counter", "-p", "file=contract.yaml").violations == [
        ("TOOL_NOT_APPROVED", "")
    ]
    decision = ("--by", "me", "--evidence", "it is mine")
    assert fresh.actum("tools", "approve", "counter", *decision).code == 0
    lines = (fresh.folder / "contract.yaml").read_text().count("\n")
    counted = fresh.actum("exec", "counter", "-p", "file=contract.yaml")
    assert counted.text == f"{lines} contract.yaml\n"
    again = fresh.actum("new", "contract")
    assert again.code == 2
    assert "exists" in again.aside


@pytest.mark.sandbox
def test_the_examples_do_what_they_say(fresh: Terminal):
    for example in (ROOT / "examples").glob("*.yaml"):
        shutil.copy(example, fresh.folder)
    assert fresh.actum("exec", "-f", "hello-contract.yaml").stdout == b"hello world\n"
    found = fresh.json("exec", "-f", "search.yaml")
    assert found.code == 0
    matches = [each for each in found.json["output"] if each["type"] == "match"]
    tools = {each["data"]["path"]["text"] for each in matches}
    assert {"tools/git/tool.yaml", "tools/shell/tool.yaml"} <= tools


@pytest.mark.req("000-133")
def test_the_search_adapter_derives_nothing_from_its_parameters(project: Terminal):
    told = project.json("adapters", "show", "ADP-001", "--level", "2").json
    assert told["interface"]["cli"]["env_mapping"] == {}
    assert told["transforms"]["input"] == []


@pytest.mark.req("000-153", "000-154", "000-155", "000-156")
def test_adapters_are_told_level_by_level(project: Terminal):
    told = [
        project.json("adapters", "show", "ADP-001", "--level", str(level)).json
        for level in range(4)
    ]
    assert list(told[0]) == ["adapter_id", "name", "tool_id", "type"]
    assert [set(more) - set(less) for less, more in pairwise(told)] == [
        {"summary"},
        {"interface", "transforms"},
        {"schema", "args_schema", "examples", "fixtures"},
    ]
    found = project.json("adapters", "search", "search", "text").json["adapters"]
    assert [each["adapter_id"] for each in found] == ["ADP-001"]
    assert project.actum("adapters", "show", "ADP-999").code == 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_our_command(tmp_path: Path, shell: str):
    answer = Terminal(tmp_path).actum("completion", shell)
    assert answer.code == 0
    assert "_ACTUM_COMPLETE" in answer.text


def test_schemas_and_settings_can_be_read(project: Terminal):
    for name in project.json("schema").json["schemas"]:
        assert "properties" in project.json("schema", name).json
    assert project.json("config", "show").json["runners"] == ["local"]


@pytest.mark.sandbox
def test_the_demo_goes_as_promised():
    done = subprocess.run([ROOT / "scripts/demo.sh"], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(b"The demo went as promised.\n")
