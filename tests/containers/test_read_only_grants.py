"""What a tool reads in a read-only folder, in a container and in this host's sandbox.

The local runner maps the owner of a granted folder to the tool. An engine makes a plain mount. As
root the tool is then neither the owner nor in the group of any file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines import Engine
from hostile.jail import Jail

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of several owners"),
]
_STRANGER = 61_999
#: name -> (owner, mode)
_FILES = {
    "everyone's": (0, 0o644),
    "root's own": (0, 0o600),
    "of root's group": (0, 0o640),
    "a stranger's own": (_STRANGER, 0o600),
    "a stranger's, for everyone": (_STRANGER, 0o604),
    "nobody's": (0, 0o000),
    "closed/root's below a closed folder": (0, 0o644),
}


def _fill(folder: Path) -> None:
    (folder / "closed").mkdir(parents=True)
    for name, (owner, mode) in _FILES.items():
        (folder / name).write_text(f"{name}\n")
        os.chown(folder / name, owner, owner)
        (folder / name).chmod(mode)
    (folder / "closed").chmod(0o700)


def _readable(jail: Jail) -> set[str]:
    """Names whose content a tool reads, by `cat` and by a link to each, made in scratch."""
    given = jail.root / "given"
    _fill(given)
    script = f"""
cd {given}
for each in * closed/*; do
    [ -d "$each" ] && continue
    cat "$each"; ln -sf "$PWD/$each" /tmp/link; cat /tmp/link; chmod 644 "$each"; cat "$each"
done 2>/dev/null
cat "closed/root's below a closed folder" 2>/dev/null
true
"""
    limits = {"sandbox.filesystem.read": [str(given)], "sandbox.filesystem.write": [str(jail.work)]}
    return set(filter(None, jail.said(jail.sh(script, limits=limits)).splitlines()))


def test_a_container_reads_nothing_that_a_sandbox_would_refuse(
    tmp_path: Path, engine: Engine
) -> None:
    found = {}
    for name, containers in (("local", None), ("container", engine.socket)):
        (tmp_path / name).mkdir()
        jail = Jail(tmp_path / name, Path("/bin/true"), pool=False, containers=containers)
        try:
            found[name] = _readable(jail)
        finally:
            jail.close()
    everyones = {"everyone's", "a stranger's, for everyone"}
    roots = {"root's own", "of root's group", "closed/root's below a closed folder"}
    assert found["container"] == everyones
    assert found["local"] == everyones | roots
