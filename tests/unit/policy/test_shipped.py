"""The tools that come with Actum, taken through call, policy and input checks as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actum.adapters.cli import build_call
from actum.contract.call import CheckResult, EffectivePolicy
from actum.contract.model import Contract, RunnerKind
from actum.policy.effective import PolicySettings, effective_policy
from actum.policy.inputs import Checked, check_inputs
from actum.registry.load import load_adapters, load_tool
from actum.registry.model import Entry
from actum.registry.ship import ship, shipped_names

from .factories import make_contract, make_entry


@pytest.fixture
def shipped(tmp_path: Path) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    ship(tmp_path / "tools", RunnerKind.LOCAL)
    for name in shipped_names():
        folder = tmp_path / "tools" / name
        (adapter,) = load_adapters(folder)
        entries[name] = Entry(tool=load_tool(folder), adapter=adapter, pin=make_entry().pin)
    return entries


def taken_through(
    entry: Entry, root: Path, **inputs: Any
) -> tuple[Checked, EffectivePolicy, Contract]:
    assert entry.adapter.cli is not None
    contract = make_contract(
        working_directory=str(root), **{"command": entry.adapter.cli.executable} | inputs
    )
    settings = PolicySettings(repo_root=str(root), home=str(root / ".actum"))
    policy, violations, needed = effective_policy(contract, entry, settings)
    assert (violations, needed) == ((), ())
    checked = check_inputs(contract, build_call(contract, entry), entry, policy, root=str(root))
    return checked, policy, contract


CALLS: dict[str, dict[str, Any]] = {
    "fetch": {"parameters": {"url": "https://example.test/a?b=c&d"}},
    "npm": {"arguments": ("install", "left-pad@^1.0.0")},
    "pip": {"arguments": ("install", "--target", "vendor", "six>=1.0; python_version>'3'")},
    "git": {"arguments": ("log", "--format=%h (%s)", "-n", "3")},
    "node": {"stdin": b"console.log(1)"},
    "python": {"stdin": b"print(1)"},
    "ripgrep": {"parameters": {"pattern": "a.*(b|c)$", "path": "."}},
    "shell": {"stdin": b"echo $1", "arguments": ("it's; $HOME",)},
    "snippet": {"stdin": b"{}", "arguments": ("json", "os.path")},
}


def test_every_shipped_tool_can_be_called(shipped: dict[str, Entry], tmp_path: Path) -> None:
    assert set(shipped) == set(CALLS)
    for name, entry in shipped.items():
        checked, _, _ = taken_through(entry, tmp_path, **CALLS[name])
        assert checked.violations == (), name


@pytest.mark.req("000-129", "000-130", "000-131", "000-132", "000-133")
def test_the_shipped_ripgrep_runs_as_the_seed_writes_it(
    shipped: dict[str, Entry], tmp_path: Path
) -> None:
    checked, policy, _ = taken_through(
        shipped["ripgrep"],
        tmp_path,
        parameters={"pattern": "a b*", "path": ".", "ignore_case": True, "max_count": 7},
    )
    assert checked.call.argv == (
        "rg", "--json", "--no-heading", "-i", "-m", "7", "--", "a b*", ".",
    )  # fmt: skip
    assert checked.call.environment == {}
    assert (policy.limits.timeout_ms, policy.limits.memory_mb) == (60_000, 256)
    assert not policy.network.enabled
    assert policy.write == ()


def test_the_shipped_git_runs_only_its_listed_subcommands(
    shipped: dict[str, Entry], tmp_path: Path
) -> None:
    good, _, _ = taken_through(shipped["git"], tmp_path, arguments=("status", "--short"))
    assert good.call.operation == "git status"
    # The schema refuses these too; here the allowlist alone must hold.
    tool = shipped["git"].tool
    for arguments in (("push",), ("-c", "alias.x=!sh", "x"), ("--exec-path=/tmp", "status")):
        entry = make_entry(cli=shipped["git"].adapter.cli, scope=tool.scope, args_schema={})
        checked, _, _ = taken_through(entry, tmp_path, arguments=arguments)
        assert checked.checks[0].result is CheckResult.BLOCKED
