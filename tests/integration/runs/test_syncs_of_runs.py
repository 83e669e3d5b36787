"""What a durable run adds to its items on the disk, seen by the kernel: two syncs for each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from work.shop import add_agent, item, make_project

pytestmark = pytest.mark.sandbox

#: The same items, one after the other: as a run, and each alone.
_PROGRAM = """
import json, sys
from actum import Runtime
how, items = sys.argv[2], json.loads(sys.argv[3])
with Runtime.open(sys.argv[1], pool=False) as rt:
    if how == "run":
        assert rt.work_file(json.dumps({"items": items}), at_once=1).ok
    else:
        assert all(rt.work(each).status == "success" for each in items)
"""
_SYNC = re.compile(r"\b(fsync|fdatasync|sync_file_range|syncfs|sync|msync)\(")
_FEW, _MANY = 2, 8


def syncs(folder: Path, how: str, count: int) -> int:
    project = make_project(folder / f"{how}{count}")
    add_agent(project, "id=$(date +%s%N)-$$; echo $id > $id")
    items = [item(id=f"i{number}", description=f"Number {number}") for number in range(count)]
    log = folder / f"{how}{count}.strace"
    traced = subprocess.run(
        [
            *("strace", "-f", "-o", str(log)),
            *("-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync,msync"),
            *(sys.executable, "-c", _PROGRAM, str(project), how, json.dumps(items)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert traced.returncode == 0, traced.stderr[-2000:]
    return len(_SYNC.findall(log.read_text()))


def test_a_run_adds_two_syncs_to_each_item(tmp_path: Path) -> None:
    """The step before its start, and its end. Nothing that waits or polls adds one."""
    added = {
        how: syncs(tmp_path, how, _MANY) - syncs(tmp_path, how, _FEW) for how in ("run", "alone")
    }
    each = {how: count / (_MANY - _FEW) for how, count in added.items()}
    assert each["alone"] >= 5, "the control: a commit is synced"
    assert each["run"] - each["alone"] <= 2, each
