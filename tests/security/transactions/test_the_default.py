"""Changes are a transaction unless a person has approved otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import deciding
from actum.registry.lock import read_lock
from actum.registry.pinned_settings import settings_state
from actum.settings_file import read_settings
from actum.store.keys import Keyring
from actum.value import replace
from common.settings import approve

pytestmark = pytest.mark.sandbox

_DIRECT = '\n[workspace]\nchanges = "direct"\n'
_TRANSACTION = '\n[workspace]\nchanges = "transaction"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    return root


def _approved(root: Path) -> dict[str, object]:
    pin = read_lock(root, Keyring.open(root / ".actum").trusted).settings
    assert pin is not None
    return dict(pin.values)


def _write(root: Path) -> tuple[str, tuple[str, ...]]:
    """The state of an execution that writes one file, and why it was refused."""
    with Runtime.open(root) as runtime:
        result = runtime.exec("shell", stdin="echo x > new", cwd=root)
    state = "" if result.workspace is None else result.workspace.state
    return state, tuple(result.reason_codes)


def test_a_new_project_has_transactions(project: Path) -> None:
    assert _write(project) == ("committed", ())
    assert (project / "new").read_text() == "x\n"


def test_a_throwaway_project_has_them_too() -> None:
    with Runtime.temporary() as runtime:
        result = runtime.exec("shell", stdin="mkdir agents; echo x > agents/a")
        root = runtime.settings.root
        assert result.workspace is not None
        assert result.workspace.state == "held"
        assert not (root / "agents").exists()


def test_a_project_whose_lock_does_not_name_the_setting_opens_with_them(project: Path) -> None:
    """As every project from before they were the default, since a lock holds no defaults."""
    assert "workspace.changes" not in _approved(project)
    assert settings_state(read_settings(project), project / ".actum").approved
    assert _write(project) == ("committed", ())


def test_a_project_that_had_chosen_them_before_they_were_the_default_opens(project: Path) -> None:
    """Its lock names the value, which is no difference from the default now."""
    (project / "actum.toml").write_text((project / "actum.toml").read_text() + _TRANSACTION)
    keyring = Keyring.open(project / ".actum")
    with deciding(project, keyring, by="user:maker", evidence="x", date="2026-11-15") as decision:
        lock = decision.read(keyring.trusted)
        assert lock.settings is not None
        values = {**lock.settings.values, "workspace.changes": "transaction"}
        decision.write(replace(lock, settings=replace(lock.settings, values=values)))
    assert _approved(project)["workspace.changes"] == "transaction"
    assert _write(project) == ("committed", ())


def test_direct_writing_is_refused_until_it_is_approved(project: Path) -> None:
    """Also where an earlier version, of which it was the default, had seen the line."""
    with (project / "actum.toml").open("a") as file:
        file.write(_DIRECT)
    assert "workspace.changes" not in _approved(project)
    assert _write(project) == ("", ("SETTINGS_CHANGED",))
    assert not (project / "new").exists()
    (difference,) = settings_state(read_settings(project), project / ".actum").differences
    assert (difference.setting, difference.old, difference.new) == (
        "workspace.changes",
        "transaction",
        "direct",
    )
    assert "write to the project itself" in difference.because
    approve(project)
    assert _write(project) == ("direct", ())
    assert (project / "new").read_text() == "x\n"


def test_nothing_of_a_tool_is_on_the_host_while_it_runs(project: Path) -> None:
    seen: list[list[str]] = []
    before = sorted(os.listdir(project))
    with Runtime.open(project) as runtime:
        result = runtime.exec(
            "shell",
            stdin="echo x > new; ls new",
            cwd=project,
            on_output=lambda _stream, _chunk: seen.append(sorted(os.listdir(project))),
        )
    assert result.ok
    assert seen == [before]
    assert sorted(os.listdir(project)) == sorted([*before, "new"])
