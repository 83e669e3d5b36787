"""The limits that the kernel holds for a running tool are those of the contract.

Read from the host, in the tool's own process and control groups, while it runs: not from what
Actum says about itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from actum.evidence.traces import Traces
from hostile.jail import Jail, alive, marker

pytestmark = pytest.mark.sandbox

MIB = 1 << 20


def in_group(pid: int, controller: str, *names: str) -> str:
    """The content of the first of these files that the process's control group has."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            for base in (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
                for name in names:
                    file = Path(f"{base}{path}/{name}")
                    if file.exists():
                        return file.read_text().strip()
    raise AssertionError(f"process {pid} has no control group with {names}")


def cpu_cores(pid: int) -> float:
    text = in_group(pid, "cpu", "cpu.max", "cpu.cfs_quota_us")
    quota, _, period = text.partition(" ")
    return int(quota) / int(period or in_group(pid, "cpu", "cpu.cfs_period_us"))


def seen_by_the_kernel(pid: int) -> dict[str, Any]:
    status = Path(f"/proc/{pid}/status").read_text()
    limits = Path(f"/proc/{pid}/limits").read_text()
    fields = dict(re.findall(r"^(\w+):\s+(\S+)", status, re.MULTILINE))
    return {
        "memory": int(in_group(pid, "memory", "memory.max", "memory.limit_in_bytes")),
        "tasks": int(in_group(pid, "pids", "pids.max")),
        "cores": cpu_cores(pid),
        "file_bytes": int(re.findall(r"Max file size\s+(\d+)", limits)[0]),
        "privileges": (fields["CapEff"], fields["NoNewPrivs"], fields["Seccomp"]),
        "own": {
            name: os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
            for name in ("mnt", "net", "pid", "ipc", "uts")
        },
    }


@pytest.mark.req("004-15", "004-25", "000-176")
@pytest.mark.parametrize(("memory", "children", "cores"), [(97, 7, 2), (640, 3, 1)])
def test_the_kernel_holds_exactly_the_limits_of_the_contract(
    jail: Jail, memory: int, children: int, cores: int
) -> None:
    """When the tool prints its first word, every one of them is in force."""
    mark, found = marker(), []

    def look(_name: str, _chunk: bytes) -> None:
        pid, *_forks = alive(mark)  # a fork that becomes `sleep` has the same words first
        found.append(seen_by_the_kernel(pid))
        (jail.told / "seen").touch()

    limits = {
        "sandbox.memory_mb": memory,
        "sandbox.processes.max_children": children,
        "sandbox.cpu_cores": cores,
    }
    waits = f"echo first; while [ ! -e {jail.told}/seen ]; do sleep 0.02; done"
    result = jail.sh(waits, mark, limits=limits, on_output=look).check()
    (seen,) = found
    plain = jail.sh("echo first").check()
    assert (seen["memory"], seen["cores"]) == (memory * MIB, cores)
    # The tool itself is a process too, and its init.
    assert children + 1 <= seen["tasks"] <= children + 2
    assert seen["privileges"] == ("0000000000000000", "1", "2")
    assert all(seen["own"].values())
    said = {row.limit: row.requested for row in result.enforcement}
    assert (said["memory_mb"], said["max_children"], said["cpu_cores"]) == (
        str(memory), str(children), str(cores),
    )  # fmt: skip
    assert {row.limit: row.requested for row in plain.enforcement}["memory_mb"] == "512"
    events = Traces(jail.runtime.database).of_execution(result.execution_id)
    applied = [event["event_type"] for event in events]
    assert applied.index("tool_run_resource_applied") < applied.index("tool_run_output_captured")
