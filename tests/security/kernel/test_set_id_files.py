"""A set-uid file that a tool leaves behind would run as the caller, who may be root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

CHANGES = ("chmod-suid", "fchmod-sgid", "fchmodat2-suid")
CREATIONS = ("open-suid", "creat-suid", "mknod-suid", "openat2-suid")


@pytest.mark.req("004-53")
@pytest.mark.parametrize("act", CHANGES)
def test_a_file_cannot_be_made_set_id(jail: Jail, act: str) -> None:
    for folder in (jail.elsewhere, jail.work):
        (folder / "file").touch()
    assert jail.freely(act, str(jail.elsewhere / "file"), namespaces=False) in {"ok", "ENOSYS"}
    assert jail.said(jail.attempt(act, "file")) == "EPERM\ncode 0"
    assert _set_id_bits(jail.work / "file") == 0


@pytest.mark.req("004-53")
@pytest.mark.parametrize("act", CREATIONS)
def test_a_file_cannot_be_created_set_id(jail: Jail, act: str) -> None:
    outside = jail.elsewhere / act
    assert jail.freely(act, str(outside), namespaces=False) == "ok"
    assert _set_id_bits(outside) != 0
    said = jail.said(jail.attempt(act, "made"))
    assert said in {"EPERM\ncode 0", "ENOSYS\ncode 0"}
    assert not (jail.work / "made").exists()


@pytest.mark.req("004-53")
def test_a_nameless_file_cannot_be_set_id(jail: Jail) -> None:
    assert jail.freely("tmpfile-suid", str(jail.elsewhere), namespaces=False) == "ok"
    assert jail.said(jail.attempt("tmpfile-suid", ".")) == "EPERM\ncode 0"


@pytest.mark.parametrize(("transactions", "sticky"), [(True, 0o777), (False, 0o1777)])
def test_ordinary_modes_can_be_set(
    tmp_path: Path, probe: Path, transactions: bool, sticky: int
) -> None:
    """Of a mode, nine bits are committed (docs/changes.md)."""
    jail = Jail(tmp_path, probe, transactions=transactions)
    script = "umask 0; : > a; chmod 755 a; chmod 640 a; mkdir b; chmod 1777 b; install -m 700 a c"
    said = jail.said(jail.sh(f"{script}; stat -c %a a b c").check())
    jail.close()
    assert said.split() == ["640", "1777", "700"]
    modes = {name: os.stat(jail.work / name).st_mode & 0o7777 for name in "abc"}
    assert modes == {"a": 0o640, "b": sticky, "c": 0o700}


def _set_id_bits(path: Path) -> int:
    return path.stat().st_mode & 0o6000
