"""Groups of version 1, on this host: every limit holds, and the kernel proves it."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.sandbox import cgroup_v1
from actum.sandbox.cgroup import (
    V1_CONTROLLERS,
    CgroupsUnavailable,
    Layout,
    fresh_name,
    read,
    write,
)
from actum.sandbox.cgroup_v1 import Group, Hierarchies

MIB = 1 << 20

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        Layout.of_host().version() != 1, reason="this host has version 2, as tests/vm has"
    ),
]


@pytest.fixture
def hierarchies() -> Hierarchies:
    return Hierarchies.of(Layout.of_host())


@pytest.fixture
def name() -> str:
    return fresh_name()


@pytest.fixture
def group(hierarchies: Hierarchies, name: str) -> Iterator[Group]:
    made = hierarchies.make(name)
    made.limit(memory_bytes=64 * MIB, cpu_cores=1, children=2)
    yield made
    made.remove()


def folders(hierarchies: Hierarchies, name: str) -> dict[str, str]:
    return {
        controller: f"{parent}/{name}"
        for controller, parent in hierarchies.parents(os.geteuid()).items()
    }


def inside(group: Group, act: Callable[[], int]) -> int:
    """Start `act` in the group, as the tool's process joins it; returns the pid."""
    doors = [os.open(f"{folder}/tasks", os.O_WRONLY) for folder in {*group._folders.values()}]
    pid = os.fork()
    if pid == 0:
        for door in doors:
            os.write(door, b"0")
        os._exit(act())
    for door in doors:
        os.close(door)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def grab_memory() -> int:
    block = bytearray(200 * MIB)
    block[::4096] = b"x" * len(block[::4096])
    return 0


def fork_until_refused() -> int:
    made: list[int] = []
    while True:
        try:
            child = os.fork()
        except OSError as error:
            for pid in made:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return len(made) if error.errno == errno.EAGAIN else 99
        if child == 0:
            time.sleep(60)
            os._exit(0)
        made.append(child)


def spin() -> int:
    while True:
        pass


def heard(group: Group, wait_ms: int) -> bool:
    poll = select.poll()
    poll.register(group.oom_event, group.oom_poll)
    return bool(poll.poll(wait_ms))


def test_every_limit_is_written(hierarchies: Hierarchies, name: str, group: Group):
    made = folders(hierarchies, name)
    assert int(read(f"{made['memory']}/memory.limit_in_bytes")) == 64 * MIB
    assert int(read(f"{made['memory']}/memory.swappiness")) == 0
    assert int(read(f"{made['pids']}/pids.max")) == 3
    assert int(read(f"{made['cpu']}/cpu.cfs_quota_us")) == 100_000
    assert int(read(f"{made['cpu']}/cpu.cfs_period_us")) == 100_000


@pytest.mark.req("000-12", "004-50")
def test_out_of_memory_kills_and_is_heard_and_proven(group: Group):
    assert not heard(group, 0)
    assert group.oom_kills() == 0
    assert status_of(inside(group, grab_memory)) == -signal.SIGKILL
    assert heard(group, 2_000)
    assert group.oom_heard()
    usage = group.usage()
    assert usage.oom_kills >= 1
    assert usage.oom_proof == f"memory.oom_control oom_kill 0 -> {usage.oom_kills}"
    assert usage.memory_peak_bytes == 64 * MIB


@pytest.mark.req("000-36")
def test_memory_is_counted_over_the_whole_tree(group: Group):
    def two_children() -> int:
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                # The kernel takes one of the children, and not their parent, which has to tell.
                Path("/proc/self/oom_score_adj").write_text("1000")
                block = bytearray(40 * MIB)
                block[::4096] = b"x" * len(block[::4096])
                time.sleep(60)
                os._exit(0)
            children.append(child)
        # Until one of the two, neither of which is above the limit alone, is taken.
        taken, status = os.waitpid(-1, 0)
        for child in children:
            if child != taken:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        return 0 if os.WIFSIGNALED(status) else 1

    pid = inside(group, two_children)
    assert status_of(pid) == 0
    assert group.oom_kills() == 1


@pytest.mark.req("000-86")
def test_a_plain_kill_is_not_out_of_memory(group: Group):
    assert status_of(inside(group, lambda: os.kill(os.getpid(), signal.SIGKILL) or 0)) == -9
    assert group.usage().oom_kills == 0
    assert not heard(group, 0)


@pytest.mark.req("000-42")
def test_one_child_more_than_granted_is_refused_and_counted(group: Group):
    assert status_of(inside(group, fork_until_refused)) == 2
    usage = group.usage()
    assert usage.forks_refused == 1
    assert usage.tasks_peak in (None, 3)


@pytest.mark.parametrize("cores", [1, 4])
def test_cores_become_a_quota_per_period(hierarchies: Hierarchies, name: str, cores: int):
    group = hierarchies.make(name)
    group.limit(memory_bytes=64 * MIB, cpu_cores=cores, children=2)
    cpu = folders(hierarchies, name)["cpu"]
    quota, period = (int(read(f"{cpu}/cpu.cfs_{word}_us")) for word in ("quota", "period"))
    group.remove()
    assert quota == cores * period


def test_being_held_back_is_counted(hierarchies: Hierarchies, name: str, group: Group):
    # A twentieth of a core, which even a crowded host has to give: one core may never be free.
    write(f"{folders(hierarchies, name)['cpu']}/cpu.cfs_quota_us", 5_000)
    assert group.usage().periods_throttled == 0
    pid = inside(group, spin)
    until = time.monotonic() + 60
    while not group.usage().periods_throttled and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    status_of(pid)
    usage = group.usage()
    assert usage.periods_throttled > 0
    assert usage.cpu_ns > 0


def test_removal_leaves_nothing(hierarchies: Hierarchies):
    name = fresh_name()
    group = hierarchies.make(name)
    group.limit(memory_bytes=64 * MIB, cpu_cores=1, children=0)
    status_of(inside(group, lambda: 0))
    group.remove()
    assert not any(os.path.exists(folder) for folder in folders(hierarchies, name).values())


@pytest.mark.parametrize("gone", V1_CONTROLLERS)
def test_figures_of_a_group_that_goes_are_not_taken_for_others(hierarchies: Hierarchies, gone: str):
    name = fresh_name()
    group = hierarchies.make(name)
    try:
        os.rmdir(folders(hierarchies, name)[gone])
        with pytest.raises(OSError, match=gone):
            group.usage()
    finally:
        group.remove()


def test_a_group_that_cannot_be_made_whole_is_not_made_at_all(hierarchies: Hierarchies):
    name = fresh_name()
    wanted = list(dict.fromkeys(folders(hierarchies, name).values()))
    os.makedirs(wanted[-1])
    try:
        with pytest.raises(CgroupsUnavailable, match="File exists"):
            hierarchies.make(name)
        assert not any(os.path.exists(folder) for folder in wanted[:-1])
    finally:
        os.rmdir(wanted[-1])


def test_a_limit_that_cannot_be_set_is_said_with_its_file(hierarchies: Hierarchies, group: Group):
    with pytest.raises(CgroupsUnavailable, match=r"memory\.limit_in_bytes: Invalid argument"):
        group.limit(memory_bytes=-2, cpu_cores=1, children=1)


def test_mechanisms_are_named_as_version_1(hierarchies: Hierarchies):
    assert set(hierarchies.mechanisms) == {"memory_mb", "cpu_cores", "max_children"}
    assert all("cgroup v1" in text for text in hierarchies.mechanisms.values())
    assert tuple(hierarchies.mounts) == cgroup_v1.V1_CONTROLLERS
