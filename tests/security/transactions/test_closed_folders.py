"""A tool that closes the folder it works in locks out neither the commit nor the next run."""

from __future__ import annotations

import os
import stat

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("mode", ["000", "077", "500"])
def test_a_folder_is_committed_closed_and_the_writable_one_keeps_its_owners_bits(
    own_jail: Jail, mode: str
) -> None:
    result = own_jail.sh(f"echo x > new; mkdir d; echo y > d/f; chmod {mode} d .")
    assert result.ok, result.violations
    assert result.workspace is not None
    assert result.workspace.state == "committed", result.workspace
    assert result.workspace.created == 3
    inner = own_jail.work / "d"
    assert stat.S_IMODE(inner.stat().st_mode) == int(mode, 8)
    assert stat.S_IMODE(own_jail.work.stat().st_mode) == int(mode, 8) | 0o700
    inner.chmod(0o755)
    assert sorted(os.listdir(own_jail.work)) == ["d", "new"]
    assert (own_jail.work / "d" / "f").read_text() == "y\n"


def test_the_mode_of_the_project_keeps_the_bits_that_lead_to_its_home(own_jail: Jail) -> None:
    own_jail.root.chmod(0o755)
    result = own_jail.sh("chmod 055 . && echo closed", cwd=own_jail.root)
    assert own_jail.said(result) == "closed"
    assert stat.S_IMODE(own_jail.root.stat().st_mode) == 0o755
    widened = own_jail.sh("chmod 050 . && echo closed", cwd=own_jail.root)
    assert widened.workspace is not None
    assert widened.workspace.state == "committed"
    assert stat.S_IMODE(own_jail.root.stat().st_mode) == 0o750
    assert own_jail.said(own_jail.sh("echo again", cwd=own_jail.root)) == "again"
