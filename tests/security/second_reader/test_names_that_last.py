"""What one run does to names must not open for the next run what was closed to it."""

from __future__ import annotations

import os

import pytest

from actum import Outcome, Runtime
from actum.errors import Refused
from actum.evidence.records.audit import Decision
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_DENY = {"sandbox.filesystem.deny": ["a/b/secret", "a/closed"]}


@pytest.fixture
def hiding(jail: Jail) -> Jail:
    (jail.work / "a" / "b").mkdir(parents=True)
    (jail.work / "a" / "closed").mkdir()
    (jail.work / "a" / "b" / "secret").write_text("SECRET")
    (jail.work / "a" / "closed" / "secret").write_text("SECRET")
    return jail


@pytest.mark.req("000-16")
@pytest.mark.parametrize(
    "move",
    ["mv a z", "mv a/b z", "mv a/b a/z", "mkdir z; mv a z/a", "mv a/closed a/z", "mv a/b/secret z"],
)
def test_a_denied_path_cannot_be_given_another_name_for_the_next_run(
    hiding: Jail, move: str
) -> None:
    find = "grep -rs SECRET . | wc -l"
    assert hiding.said(hiding.sh(f"{move} 2>/dev/null; {find}", limits=_DENY)) == "0"
    assert hiding.said(hiding.sh(find, limits=_DENY)) == "0"
    assert hiding.outside(f"{move} && echo moved") == "moved"
    assert hiding.said(hiding.sh(find)) == "2"


def test_folders_beside_a_denied_path_are_written_as_before(hiding: Jail) -> None:
    script = "echo x > a/new; mv a/new a/b/newer; mkdir a/c; mv a/c a/d; rmdir a/d; cat a/b/newer"
    assert hiding.said(hiding.sh(script, limits=_DENY)) == "x"


def test_a_project_that_a_tool_made_inside_of_a_project_governs_nobody(own_jail: Jail) -> None:
    """It would bring its own key, its own approvals and its own idea of what `shell` is."""
    made = own_jail.sh("mkdir -p new/.actum/keys && : > new/actum.toml").check()
    assert made.workspace is not None
    assert made.workspace.state == "held"
    assert os.listdir(own_jail.work) == []
    request = own_jail.runtime.approvals.decide(
        made.workspace.request_id, Decision.ALLOW, by="user:boss", why="a mistake"
    )
    assert own_jail.runtime.transactions.approved(request) == "committed"
    with pytest.raises(Refused) as refused:
        Runtime.open(own_jail.work / "new")
    assert refused.value.violations[0].code == "HOME_NESTED"
    with Runtime.open(own_jail.work) as found:
        assert found.settings.root == own_jail.root


def test_a_link_that_a_tool_made_does_not_widen_the_next_run(own_jail: Jail) -> None:
    """Asked to work in `work/inner`, the next run could write wherever that leads to."""
    own_jail.sh(f"ln -s {own_jail.root} inner; mkdir real").check()
    refused = own_jail.sh("echo x > beyond", cwd=own_jail.work / "inner")
    assert refused.outcome is Outcome.REJECTED
    assert [each.code for each in refused.violations] == ["IV-03"]
    assert f"through the link {own_jail.work}/inner" in refused.violations[0].message
    assert not (own_jail.root / "beyond").exists()
    own_jail.sh("echo x > beyond", cwd=own_jail.work / "real").check()
    own_jail.sh("echo x > beyond", cwd=own_jail.root).check()
    assert (own_jail.root / "beyond").exists()


_RECONFIGURE = "git -C inner config core.fsmonitor 'touch /tmp/owned'"


def test_a_repository_inside_of_the_writable_directory_cannot_be_reconfigured(
    own_jail: Jail,
) -> None:
    """git, run by the caller in there, would start what the tool wrote."""
    own_jail.outside("git init -q inner")
    config = own_jail.work / "inner" / ".git" / "config"
    before = config.read_bytes()
    result = own_jail.sh(f"{_RECONFIGURE} && git -C inner config core.fsmonitor")
    assert own_jail.said(result) == "touch /tmp/owned"
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    assert config.read_bytes() == before
    own_jail.outside(_RECONFIGURE)
    assert b"touch /tmp/owned" in config.read_bytes()
