"""An execution reaches the disk exactly twice, seen by the kernel and not by our own counters."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, sys
from pathlib import Path
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

project = Path(sys.argv[1])
create(project, RunnerKind.LOCAL, by="user:test", date="2031-01-01")
script, writes = sys.argv[2].encode(), sys.argv[3:]
with Runtime.open(project) as runtime:
    def once():
        result = runtime.exec("shell", stdin=script, cwd=project, set={"outputs.artifacts": writes})
        assert result.outcome == "SUCCEEDED", result
        assert len(result.result.artifacts) == len(writes)
        return result
    for _ in range(3):
        once()
    for _ in range(10):
        os.chdir("/proc")          # seen in the trace: an execution begins
        result = once()
        os.chdir("/")              # and is over, its result in hand
"""
_CALL = re.compile(r"\b(chdir|fsync|fdatasync|sync_file_range|syncfs|sync|msync)\(([^)]*)")


def syncs_per_execution(tmp_path: Path, script: str, *writes: str) -> list[list[str]]:
    log = tmp_path / "strace"
    traced = subprocess.run(
        [
            *("strace", "-f", "-y", "-o", str(log)),
            *("-e", "trace=chdir,fsync,fdatasync,sync_file_range,syncfs,sync,msync"),
            *(sys.executable, "-c", _PROGRAM, str(tmp_path / "project"), script, *writes),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert traced.returncode == 0, traced.stderr[-2000:]
    executions: list[list[str]] = []
    inside, ours = False, ""
    for line in log.read_text().splitlines():
        found = _CALL.search(line)
        if not found:
            continue
        name, arguments = found.groups()
        process = line.split()[0]
        if name == "chdir" and arguments.startswith('"/proc"'):  # strace may split a line
            executions.append([])
            inside, ours = True, process
        elif name == "chdir" and process == ours:  # the sandbox changes directory too
            inside = False
        elif name != "chdir" and inside:
            executions[-1].append(f"{name} {arguments}")
    assert len(executions) == 10
    return executions


@pytest.mark.sandbox
def test_an_execution_costs_exactly_two_syncs_both_of_the_one_file(tmp_path: Path) -> None:
    for calls in syncs_per_execution(tmp_path, "echo hello"):
        assert len(calls) == 2, calls
        assert all(call.startswith("fdatasync") and "actum.journal" in call for call in calls)


@pytest.mark.sandbox
def test_small_collected_files_share_those_two(tmp_path: Path) -> None:
    script = "cd $ACTUM_ARTIFACTS; date +%N > a; head -c 200000 /dev/urandom > b"
    for calls in syncs_per_execution(tmp_path, script, "a", "b"):
        assert len(calls) == 2, calls


@pytest.mark.sandbox
def test_a_large_collected_file_is_on_the_disk_before_the_record_that_names_it(
    tmp_path: Path,
) -> None:
    script = "head -c 300000 /dev/urandom > $ACTUM_ARTIFACTS/large"
    for calls in syncs_per_execution(tmp_path, script, "large"):
        where = ["journal" if "actum.journal" in call else "evidence" for call in calls]
        assert where[0] == "journal"
        assert where[-1] == "journal"
        # Content and name, and the folder's own name when it is new.
        assert where[1:-1] in (["evidence"] * 2, ["evidence"] * 3), calls
        assert calls[1].startswith("fsync")
