"""Every key of actum.toml is declared to need an approval or not, and is treated like that."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.settings import load
from actum.settings_file import KEYS, Approval, key_of, read_settings
from actum.store.keys import Keyring
from common.settings import approve

#: Key -> (the value that is approved, or none; another one), as TOML. What gives most comes last.
EDITS = {
    "runners.local": ("false", "true"),
    "runners.docker": ("", "true"),
    "runners.remote": ("", "true"),
    "docker.host": ('"/run/docker.sock"', '"unix:///run/podman/podman.sock"'),
    "docker.runtime": ("", '"runc"'),
    "trust.keys": ("[]", "[PEM]"),
    "filesystem.dependencies": ("", '["/opt"]'),
    "interpreters.prefixes": ("", '["/var/lib/dpkg"]'),
    "network.registries": ("", "[]"),
    "network.apis": ('["a.test"]', '["b.test"]'),
    "egress.ca_file": ("", '"ca.pem"'),
    "egress.resolve": ("", '{ "a.test:80" = "127.0.0.1:80" }'),
    "egress.max_connections": ("7", "8"),
    "egress.max_at_once": ("", "2001"),
    "egress.max_mb": ("9000", "9001"),
    "mcp.websocket": ("false", "true"),
    "work.exclusive": ("", "true"),
    "work.engine": ("", '"copy"'),
    "work.ignore": ("", '["*.log"]'),
    "workspace.changes": ("", '"direct"'),
    "workspace.on_stop": ("", '"commit"'),
    "workspace.last_wins": ("", '["*"]'),
    "workspace.keep": ("", "0"),
    "workspace.keep_mb": ("", "1000000"),
    "workspace.engine": ("", '"copy"'),
    "workspace.copy_max_mb": ("", "4096"),
    "workspace.copy_max_files": ("100", "101"),
    "protect.names": ("", "[]"),
    "secrets.A": ('{ env = "X" }', '{ command = ["/bin/echo", "x"] }'),
    "secrets.B": ("", '{ keyring = "k" }'),
    "runs.store": ("", '"postgresql://u@db.test/fleet"'),
    "runs.password": ("", '"LEDGER"'),
    "runs.dead_after_s": ("", "60"),
    "limits.max_concurrent": ("1", "1000"),
    "limits.max_queued": ("", "100000"),
    "limits.max_wait_s": ("", "86400"),
    "limits.max_sessions": ("", "1000"),
}


def write(root: Path, setting: str, value: str) -> None:
    section, _, name = setting.partition(".")
    pem = '"""' + Keyring.open(root / ".actum").signer.public.pem + '"""'
    line = f"{name} = {value.replace('PEM', pem)}\n" if value else ""
    (root / "ca.pem").write_text("certificates\n")
    (root / "actum.toml").write_text(f"[{section}]\n{line}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create(tmp_path, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    return tmp_path


def changed(root: Path) -> list[str]:
    """The settings that an execution would be refused for."""
    with Runtime(load(root / ".actum", {"LOGNAME": "me"}), pool=False) as runtime:
        violations = runtime.check({"tool_id": "shell", "inputs": {"command": "sh"}}).violations
        return [each.field for each in violations if each.code == "SETTINGS_CHANGED"]


def test_every_key_is_edited_below() -> None:
    declared = {f"{section}.{name}" for section, names in KEYS.items() for name in names}
    assert declared | {"secrets.A", "secrets.B"} == set(EDITS)
    assert all(key_of(setting) for setting in EDITS)


@pytest.mark.parametrize("setting", EDITS)
def test_a_key_is_compared_with_its_approval_as_declared(root: Path, setting: str) -> None:
    key = key_of(setting)
    assert key is not None
    less, more = EDITS[setting]
    write(root, setting, less)
    approve(root)
    assert changed(root) == []
    write(root, setting, more)
    assert changed(root) == ([] if key.approval is Approval.FREE else [setting])
    approve(root)
    assert changed(root) == []
    write(root, setting, less)
    assert changed(root) == ([setting] if key.approval is Approval.EXACT else [])


def plain_default(setting: str) -> bool:
    key = key_of(setting)
    return key is not None and isinstance(key.default, bool | int | str)


@pytest.mark.parametrize("setting", [each for each in EDITS if plain_default(each)])
def test_what_is_written_out_as_the_default_is_the_default(root: Path, setting: str) -> None:
    key = key_of(setting)
    assert key is not None
    write(root, setting, str(key.default).lower() if key.kind is not str else f'"{key.default}"')
    assert setting not in read_settings(root).approvable


def test_the_page_says_of_each_key_whether_it_needs_an_approval() -> None:
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    for section, names in KEYS.items():
        for name, key in names.items():
            (row,) = [
                line for line in page.splitlines() if line.startswith(f"| `{section}.{name}`")
            ]
            assert row.split("|")[4].strip() == key.approval.value, row
