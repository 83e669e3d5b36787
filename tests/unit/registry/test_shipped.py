"""The tools that come along: complete, offline, harmless in what a caller may set."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from actum.contract.model import RunnerKind
from actum.documents.document import load_document
from actum.registry.digest import folder_digest
from actum.registry.load import load_adapters, load_tool
from actum.registry.ship import ship, shipped_names

NAMES = ("fetch", "git", "node", "npm", "pip", "python", "ripgrep", "shell", "snippet")
ONLINE = ("fetch", "npm", "pip")
SEED_ADP_001 = """\
adapter_id: ADP-001
name: ripgrep-search
version: "1.0.0"
tool_id: TL-003

type: cli

interface:
  cli:
    executable: rg
    base_args: ["--json", "--no-heading"]
    arg_mapping:
      pattern: "{pattern}"
      path: "{path}"
      ignore_case: "-i"
      max_count: "-m {value}"
    env_mapping: {}

transforms:
  input: []
  output:
    - type: parse
      spec: json_lines

errors:
  retry:
    max_attempts: 1
    backoff_ms: 0
    retryable_codes: []
  fallback: null

sandbox_override:
  timeout_ms: 60000
  memory_mb: 256
  network:
    enabled: false

metadata:
  author: Runtime Agent
  created: "2026-01-16"
  updated: "2026-01-16"
  status: active
"""


@pytest.mark.req("000-128")
def test_the_first_example_of_the_seed_is_shipped_byte_for_byte(repository: Any) -> None:
    file = repository.folder("ripgrep") / "adapters" / "ripgrep-search.yaml"
    assert file.read_text() == SEED_ADP_001


@pytest.mark.req("000-189")
@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_tool_has_its_parts_and_can_be_approved(repository: Any, name: str) -> None:
    folder = repository.folder(name)
    assert shipped_names() == NAMES
    for part in ("tool.yaml", "README.md", "CHANGELOG.md", "fixtures/examples.yaml"):
        assert (folder / part).read_text().strip()
    assert repository.problems(name) == ()
    repository.approve(name)
    assert repository.registry().entry(name, None).tool.name == name


def test_ids_are_the_ones_that_are_documented(repository: Any) -> None:
    ids = {tool.name: tool.tool_id for tool in repository.registry().tools()}
    assert ids == {
        "git": "TL-001",
        "ripgrep": "TL-003",
        "shell": "TL-010",
        "python": "TL-011",
        "node": "TL-012",
        "snippet": "TL-013",
        "pip": "TL-014",
        "npm": "TL-015",
        "fetch": "TL-016",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_tool_names_no_host_and_sets_nothing_that_loads_code(
    repository: Any, name: str
) -> None:
    tool = load_tool(repository.folder(name))
    if name in ONLINE:
        # No host by name: level registry reaches those of this host, else a person decides.
        assert (tool.scope.network, tool.scope.hosts) == (True, ("*",))
        assert tool.permissions.outbound == ("http", "https")
    else:
        assert (tool.scope.network, tool.scope.hosts) == (False, ())
        assert tool.permissions.outbound == ()
    assert tool.permissions.secrets == ()
    harmful = {"PATH", "ENV", "BASH_ENV", "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "IFS"}
    assert not harmful & set(tool.environment)
    assert not [v for v in tool.environment if v.startswith(("LD_", "GIT_", "NODE_", "BASH_"))]


@pytest.mark.parametrize("name", ["git", "ripgrep", "snippet"])
def test_the_tools_that_only_look_may_write_nothing(repository: Any, name: str) -> None:
    tool = load_tool(repository.folder(name))
    assert (tool.scope.data_access, tool.permissions.write) == ("read", ())


@pytest.mark.parametrize("runner", list(RunnerKind))
def test_shipping_writes_the_chosen_runner_and_nothing_else_differs(
    tmp_path: Path, runner: RunnerKind
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    ship(first, runner)
    ship(second, runner)
    for name in NAMES:
        assert load_tool(first / name).permissions.runner is runner
        assert folder_digest(first / name) == folder_digest(second / name)


def test_shipping_leaves_what_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    written = ship(tmp_path, RunnerKind.LOCAL)
    assert [path.name for path in written] == [name for name in NAMES if name != "git"]
    assert list((tmp_path / "git").iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_example_fits_the_schema_of_its_tool(repository: Any, name: str) -> None:
    folder = repository.folder(name)
    tool = load_tool(folder)
    adapters = {adapter.adapter_id for adapter in load_adapters(folder)}
    validator = jsonschema_rs.validator_for(dict(tool.args_schema), offline=True)
    examples = load_document((folder / "fixtures" / "examples.yaml").read_text()).value
    assert examples
    for example in examples:
        asked = dict(example.get("parameters", {}))
        if "arguments" in example:
            asked["arguments"] = example["arguments"]
        validator.validate(asked)
        assert example["adapter_id"] in adapters
        if "stdin_file" in example:
            assert (folder / "fixtures" / example["stdin_file"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        (["status", "--short"], True),
        (["diff", "HEAD~1", "--", "src"], True),
        (["branch", "--all"], True),
        (["branch", "--contains=HEAD"], True),
        ([], False),
        (["push"], False),
        (["commit", "-m", "x"], False),
        (["-c", "alias.status=!sh", "status"], False),
        (["branch", "-D", "main"], False),
        (["branch", "new"], False),
        (["log", "--output=/tmp/x"], False),
        (["diff", "--ext-diff"], False),
        (["diff", "--ext"], False),
    ],
)
def test_git_takes_subcommands_that_look_and_none_that_change(
    repository: Any, arguments: list[str], accepted: bool
) -> None:
    schema = load_tool(repository.folder("git")).args_schema
    validator = jsonschema_rs.validator_for(dict(schema), offline=True)
    assert validator.is_valid({"arguments": arguments}) is accepted


def git(folder: Path, *arguments: str, base: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        ["git", *base, *arguments],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_git_starts_no_program_of_the_repositorys_choice_for_a_status(
    repository: Any, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    trap = work / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {work}/sprung\n")
    trap.chmod(0o755)
    git(work, "init", "-q")
    git(work, "config", "core.fsmonitor", str(trap))
    git(work, "status", "--short")
    assert (work / "sprung").exists(), "the trap must work without our base_args"
    (work / "sprung").unlink()
    (adapter,) = load_adapters(repository.folder("git"))
    assert adapter.cli is not None
    assert git(work, "status", "--short", base=adapter.cli.base_args) == "?? trap\n"
    assert not (work / "sprung").exists()


@pytest.mark.parametrize("name", ["shell", "python", "node"])
def test_the_interpreters_take_their_program_by_stdin_and_arguments_verbatim(
    repository: Any, name: str
) -> None:
    folder = repository.folder(name)
    (adapter,) = load_adapters(folder)
    (example,) = load_document((folder / "fixtures" / "examples.yaml").read_text()).value
    assert adapter.cli is not None
    for argument in ("world", "--version", "-c", "$(id) *"):
        done = subprocess.run(
            [adapter.cli.executable, *adapter.cli.base_args, argument],
            input=(folder / "fixtures" / example["stdin_file"]).read_bytes(),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == f"hello {argument}\n"
