"""Processor time, scratch space, inodes, file sizes and descriptors are bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Thread

import pytest

from actum import Outcome
from hostile.jail import POOL, Jail, alive, appears, marker, own_cgroups, until

pytestmark = pytest.mark.sandbox

BURN = """
import os, time
for _ in range(CHILDREN):
    if os.fork() == 0:
        while True: pass
began = time.monotonic()
while time.monotonic() - began < 1.2: pass
"""


def _cpu_per_wall(jail: Jail, cores: int) -> float:
    """The kernel's own count of processor time, over the time the sandbox itself measured."""
    result = jail.python(BURN.replace("CHILDREN", "3"), limits={"sandbox.cpu_cores": cores})
    assert result.outcome is Outcome.SUCCEEDED
    rows = {row.limit: row.peak for row in result.enforcement}
    cpu, wall = rows["cpu_cores"], rows["timeout_ms"]
    assert cpu is not None
    assert wall is not None
    return cpu / wall


@pytest.mark.req("000-13", "000-39", "004-49")
def test_one_core_is_one_core_however_many_processes_want_more(jail: Jail) -> None:
    # A quota is dealt out in periods of 100 ms, so one period more than the share can be used, and
    # on each processor a slice of 5 ms.
    assert _cpu_per_wall(jail, 1) <= 1.0 + (0.1 + 0.005 * (os.cpu_count() or 1)) / 1.2


@pytest.mark.req("000-13", "000-39", "004-49")
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_kernel_holds_the_tool_to_the_cores_that_were_asked_for(jail: Jail, cores: int) -> None:
    """Read from the kernel, in the group of the tool's own process, while it runs."""
    mark, found = marker(), []

    def look() -> None:
        appears(jail.told / "running")
        tool, *_ = alive(mark)
        found.extend(_quotas(tool))
        (jail.told / "seen").touch()

    looker = Thread(target=look)
    looker.start()
    loop = f"echo running >&2; until [ -e {jail.told}/seen ]; do sleep 0.01; done"
    limits = {"sandbox.cpu_cores": cores}
    jail.sh(f"exec sh -c '{loop}' {mark}", limits=limits, on_output=jail.relay).check()
    looker.join()
    assert found == [cores]


#: Who waits for its program waits at a pipe; who is started for it finds a file.
WAITED = "import os, stat; print(stat.S_ISFIFO(os.fstat(0).st_mode), flush=True)\n"
HELD = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "CHILD"])
print("running", flush=True)
while not os.path.exists("SEEN"): time.sleep(0.01)
child.kill()
"""


@pytest.mark.req("000-39")
@pytest.mark.skipif(not POOL, reason="no interpreter waits")
def test_an_interpreter_that_waits_with_more_cores_serves_no_request_for_fewer(jail: Jail) -> None:
    words, child, found = marker(), marker(), []
    more = {"sandbox.cpu_cores": 4}

    def served_by_one_that_waited() -> bool:
        time.sleep(0.3)  # interpreters are started when no request comes
        return jail.said(jail.python(WAITED, words, limits=more)) == "True"

    until(served_by_one_that_waited)
    until(lambda: alive(words) != [])  # another one, for the next request of this kind
    time.sleep(0.5)

    def look(_name: str, _chunk: bytes) -> None:
        until(lambda: alive(child) != [])  # a new process has no command line at first
        (pid,) = alive(child)
        found.extend(_quotas(pid))
        (jail.told / "seen").touch()

    program = HELD.replace("CHILD", child).replace("SEEN", f"{jail.told}/seen")
    jail.python(program, words, limits={"sandbox.cpu_cores": 1}, on_output=look).check()
    assert found == [1]


def _quotas(pid: int) -> list[float]:
    """Processors that each control group of a process with a quota may use."""
    mine = {line.rpartition(":")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().split()}
    found = []
    for folder in map(Path, own_cgroups()):
        if not any(str(folder).endswith(group) for group in mine):
            continue
        if (folder / "cpu.cfs_quota_us").exists():
            quota = int((folder / "cpu.cfs_quota_us").read_text())
            found.append(quota / int((folder / "cpu.cfs_period_us").read_text()))
        elif (folder / "cpu.max").exists():
            most, period = (folder / "cpu.max").read_text().split()
            found.append(int(most) / int(period))
    return found


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_scratch_is_bounded(jail: Jail, folder: str) -> None:
    limits = {"sandbox.memory_mb": 128}
    result = jail.sh(f"head -c 100M /dev/zero > {folder}/big; wc -c < {folder}/big", limits=limits)
    assert jail.said(result) == str(64 << 20)
    assert "No space left" in (result.result.stderr if result.result else "")


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/artifacts"])
def test_inodes_are_bounded(jail: Jail, folder: str) -> None:
    program = f"""
made = 0
try:
    for n in range(40_000): open('{folder}/%d' % n, 'w').close(); made += 1
except OSError as error: print(error.strerror)
print(made)
"""
    said = jail.said(jail.python(program)).splitlines()
    assert said[0] == "No space left on device"
    assert 500 < int(said[1]) < 17_000


def test_a_single_file_is_bounded(jail: Jail) -> None:
    result = jail.sh("truncate -s 2G sparse; echo $?")
    assert result.result is not None
    assert (jail.work / "sparse").stat().st_size == 0
    rows = {row.limit: row.mechanism for row in result.enforcement}
    assert "per file" in rows["file_bytes"]


def test_descriptors_are_bounded(jail: Jail) -> None:
    program = """
import os
held = []
try:
    while True: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error: print(error.strerror, len(held))
"""
    said = jail.said(jail.python(program))
    assert said.startswith("Too many open files")
    assert int(said.split()[-1]) < 1_024


def test_no_core_file_is_written(jail: Jail) -> None:
    jail.sh("ulimit -c unlimited 2>/dev/null; kill -SEGV $$")
    assert os.listdir(jail.work) == []


def test_the_peak_of_scratch_is_seen_also_while_the_tool_keeps_the_init_busy(jail: Jail) -> None:
    """Every unknown system call is a question to the init, which never has a quiet moment."""
    program = """
import ctypes, os, time
syscall = ctypes.CDLL(None).syscall
with open('/tmp/big', 'wb') as file: file.write(bytes(20 << 20))
until, asked = time.monotonic() + 1, 0
while time.monotonic() < until or asked < 2_000: syscall(100_000); asked += 1
os.unlink('/tmp/big')
"""
    result = jail.python(program)
    assert result.outcome is Outcome.SUCCEEDED
    peak = {row.limit: row.peak for row in result.enforcement}["scratch_bytes"]
    assert peak is not None
    assert peak >= 20 << 20
