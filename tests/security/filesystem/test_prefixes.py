"""A prefix of `[interpreters]` is used only while nobody but the operator can change it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import Outcome, Refused, Result, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring
from common import prefixes
from common.own_folder import own_folder
from common.settings import add_settings

__all__ = ["own_folder"]
pytestmark = pytest.mark.sandbox


def edited(root: Path, tool: str, edit: Callable[[str], str]) -> None:
    file = root / f"tools/{tool}/tool.yaml"
    file.write_text(edit(file.read_text()))
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, tool, by="b", evidence="e", date="2026-01-01")


@pytest.fixture
def prefix(own_folder: Path) -> Path:
    return prefixes.script_prefix(own_folder / "versions/1")


@pytest.fixture
def root(tmp_path: Path, prefix: Path) -> Path:
    """A project whose `shell` is the shell in `prefix`, which is approved."""
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    (prefix / "bin/engine").rename(prefix / "bin/dash")
    (prefix / "bin/sh").symlink_to("dash")
    edited(root, "shell", lambda text: f'{text}\npath: ["{prefix}/bin", "/usr/bin"]\n')
    add_settings(root, f'[interpreters]\nprefixes = ["{prefix}"]\n')
    return root


def run(root: Path, script: str = "echo ran") -> Result:
    with Runtime.open(root, pool=False) as runtime:
        return runtime.exec("shell", stdin=script, cwd=root)


def require_refused(result: Result, prefix: Path, *words: str) -> None:
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("INTERPRETER_UNSAFE",))
    (violation,) = result.violations
    assert (violation.field, violation.value) == ("interpreters.prefixes", str(prefix))
    for word in words:
        assert word in violation.message


def test_a_tool_cannot_write_to_the_prefix_that_it_runs_from(root: Path, prefix: Path) -> None:
    script = (
        f"echo x > {prefix}/new || echo refused; echo x >> {prefix}/bin/dash || echo refused;"
        f"chmod 777 {prefix} || echo refused; echo fine > {root}/written"
    )
    result = run(root, script).check()
    assert result.result is not None
    assert result.result.stdout == "refused\n" * 3
    assert (root / "written").read_text() == "fine\n"
    assert not (prefix / "new").exists()


@pytest.mark.parametrize("step", ["", "..", "bin", "bin/dash"])
@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_a_step_that_others_may_write_is_refused(
    root: Path, prefix: Path, step: str, bit: int
) -> None:
    changed = (prefix / step).resolve()
    mode = changed.stat().st_mode & 0o7777
    with Runtime.open(root, pool=False) as runtime:
        assert runtime.exec("shell", stdin="echo ran", cwd=root).outcome is Outcome.SUCCEEDED
        changed.chmod(mode | bit)
        refused = runtime.exec("shell", stdin="echo ran", cwd=root)
        changed.chmod(mode)
        assert runtime.exec("shell", stdin="echo ran", cwd=root).outcome is Outcome.SUCCEEDED
    require_refused(refused, prefix, str(changed), "chmod go-w")


@pytest.mark.parametrize("at", ["", "..", "lib"], ids=["itself", "above", "inside"])
def test_a_prefix_that_a_tool_may_write_is_refused(root: Path, prefix: Path, at: str) -> None:
    """Also if another tool may: it would write what this one executes."""
    folder = (prefix / at).resolve()

    def opened(text: str) -> str:
        text = text.replace('filesystem: ["."]', f'filesystem: [".", "{folder}"]')
        return text.replace('write: ["."]', f'write: [".", "{folder}"]')

    assert run(root).outcome is Outcome.SUCCEEDED
    edited(root, "python", opened)
    require_refused(run(root), prefix, str(folder), "tools may write")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_step_of_another_user_is_refused(root: Path, prefix: Path) -> None:
    assert run(root).outcome is Outcome.SUCCEEDED
    os.chown(prefix / "bin", 12_345, 12_345)
    require_refused(run(root), prefix, str(prefix / "bin"), "12345")


def test_a_link_in_the_prefix_to_a_program_elsewhere_is_refused(
    root: Path, prefix: Path, tmp_path: Path
) -> None:
    other = tmp_path / "sh"
    other.write_bytes((prefix / "bin/dash").read_bytes())
    other.chmod(0o755)
    assert run(root).outcome is Outcome.SUCCEEDED
    (prefix / "bin/sh").unlink()
    (prefix / "bin/sh").symlink_to(other)
    result = run(root)
    assert result.reason_codes == ("EXECUTABLE_OUTSIDE",)
    assert str(other) in result.violations[0].message


def test_a_link_that_a_tool_wrote_adds_no_folder_and_the_remedy_names_it(
    root: Path, own_folder: Path
) -> None:
    secret = prefixes.script_prefix(own_folder / "private/keys")
    (root / "bin").mkdir()
    run(root, f"ln -s {secret}/bin/engine {root}/bin/sh").check()
    edited(root, "shell", lambda text: text.replace('path: ["', f'path: ["{root}/bin", "'))
    result = run(root, "echo ran")
    assert result.reason_codes == ("EXECUTABLE_OUTSIDE",)
    assert f"The link {root}/bin/sh leads there, and tools may write it" in (
        result.violations[0].message
    )


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("/", "more than one interpreter"),
        ("/home", "more than one interpreter"),
        ("/etc/alternatives", "more than one interpreter"),
        ("/usr/lib", "in every sandbox already"),
        ("/nonexistent/prefix", "is not a folder"),
        ("{link}", "reached through a link"),
        ("{project}", "holds the project"),
        ("{above}", "holds the project"),
        ("{open}", "writable by others"),
    ],
)
def test_a_folder_that_is_no_prefix_is_not_approved(
    root: Path, own_folder: Path, listed: str, why: str
) -> None:
    (own_folder / "link").symlink_to("versions")
    (own_folder / "open").mkdir()
    (own_folder / "open").chmod(0o777)
    names = {
        "link": own_folder / "link/1",
        "project": root,
        "above": root.parent,
        "open": own_folder / "open",
    }
    file = root / "actum.toml"
    before = (root / "tools.lock").read_bytes()
    file.write_text(
        file.read_text().replace("prefixes = [", f'prefixes = ["{listed.format(**names)}", ')
    )
    with pytest.raises(Refused) as refusal:
        add_settings(root, "")
    assert refusal.value.code == "SETTINGS_UNFIT"
    assert "interpreters.prefixes" in refusal.value.message
    assert why in refusal.value.message
    assert (root / "tools.lock").read_bytes() == before


def test_the_home_directory_is_no_prefix(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the account: the environment does not decide it."""
    import pwd

    home = pwd.getpwuid(os.geteuid()).pw_dir if os.geteuid() == 0 else None
    if home is None:
        pytest.skip("the ordinary user of the tests has no account")
    monkeypatch.setenv("HOME", "/nonexistent")
    add = root / "actum.toml"
    add.write_text(add.read_text().replace("prefixes = [", f'prefixes = ["{home}", '))
    with pytest.raises(Refused, match=r"more than one interpreter|your home directory"):
        add_settings(root, "")
