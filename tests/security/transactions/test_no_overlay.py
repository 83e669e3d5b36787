"""On file systems that take no overlay a tool works on a copy; forced to an overlay, nothing runs.

Each file system is mounted in a namespace of a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.sandbox

_TESTS = Path(__file__).parents[2]
_PROGRAM = """
import json, os, sys
from pathlib import Path
from actum import kernel
from actum.workspace import namespace

folder, kind, engine, script = Path(sys.argv[1]), *sys.argv[2:5]
namespace.enter()
place = folder / "place"
place.mkdir()
if kind == "overlay":
    for name in ("lower", "upper", "work"):
        (folder / name).mkdir()
    options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    options += "" if os.geteuid() == 0 else ",userxattr"
    kernel.mount("overlay", str(place), "overlay", 0, options)
elif kind == "tmpfs":
    kernel.mount("tmpfs", str(place), "tmpfs", 0, "size=48m")
elif kind != "here":
    kernel.mount(kind, str(place), kind, 0, "")

from hostile.jail import Jail  # after the mount: it keeps no folder open

jail = Jail(place, Path("/bin/true"), engine=engine)
work = jail.work
(work / "kept").write_text("kept")
(work / "changed").write_text("before")
(work / "again").mkdir()
(work / "again" / "old").write_text("x")
if kind == "tmpfs":
    (work / "large").write_bytes(bytes(30 << 20))
result = jail.sh(script, on_output=lambda *_: (work / "changed").write_text("host"))
found = {
    "refused": [violation.code for violation in result.violations],
    "remedy": str(result.violations),
    "workspace": result.workspace and [result.workspace.engine, result.workspace.state],
    "files": {str(path.relative_to(work)): path.read_text() if path.is_file() else ""
              for path in sorted(work.rglob("*")) if path.name != "large"},
    "owners": sorted({(path.lstat().st_uid, path.lstat().st_gid) for path in work.rglob("*")}),
    "transactions": [kept.state for kept in jail.runtime.transactions.all()],
}
jail.close()
left = sorted(path.name for path in (place / "project/.actum/transactions").iterdir())
print(json.dumps({**found, "left": left}))
"""
_CHANGES = (
    "echo after > changed; rm -r again; mkdir again; echo new > again/new; chmod 640 again/new"
)
_BEFORE = {"again": "", "again/old": "x", "changed": "before", "kept": "kept"}
_AFTER = {"again": "", "again/new": "new\n", "changed": "after\n", "kept": "kept"}


def _run(folder: Path, kind: str, engine: str, script: str = _CHANGES) -> dict[str, Any]:
    words = [sys.executable, "-c", _PROGRAM, str(folder), kind, engine, script]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", ["overlay", "ramfs"])
def test_auto_takes_a_copy_where_no_overlay_can_be(tmp_path: Path, kind: str) -> None:
    found = _run(tmp_path, kind, "auto")
    assert found["workspace"] == ["copy", "committed"], found
    assert found["files"] == _AFTER
    assert found["owners"] == [[os.geteuid(), os.getegid()]]
    assert found["transactions"] == ["committed"]


def test_the_control_takes_an_overlay(tmp_path: Path) -> None:
    found = _run(tmp_path, "here", "auto")
    assert found["workspace"] == ["overlay", "committed"], found
    assert found["files"] == _AFTER


def test_an_overlay_that_is_asked_for_is_refused_with_the_remedy(tmp_path: Path) -> None:
    found = _run(tmp_path, "overlay", "overlay")
    # As root the lower layer cannot be idmapped; as an ordinary user the upper one is refused.
    expected = "IDMAP_UNSUPPORTED" if os.geteuid() == 0 else "OVERLAY_UNSUPPORTED"
    assert found["refused"] == [expected], found
    assert "[workspace] engine" in found["remedy"]
    assert found["workspace"] is None
    assert found["files"] == _BEFORE
    assert found["left"] in ([], ["lock"])


def test_what_the_host_changes_there_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    found = _run(tmp_path, "overlay", "auto", f"{_CHANGES}; echo up; sleep 1")
    assert found["workspace"] == ["copy", "conflict"], found
    assert found["files"] == {**_BEFORE, "changed": "host"}


def test_a_disk_without_room_for_the_copy_refuses_and_loses_nothing(tmp_path: Path) -> None:
    found = _run(tmp_path, "tmpfs", "copy")
    assert found["refused"] == ["COPY_NO_SPACE"], found
    assert found["files"] == _BEFORE
    assert found["left"] in ([], ["lock"])
