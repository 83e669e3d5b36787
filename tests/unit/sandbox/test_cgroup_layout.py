"""Which version of the cgroups is used, and what is said where neither will do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.evidence.owner import current_owner
from actum.sandbox.cgroup import (
    V1_CONTROLLERS,
    V2_CONTROLLERS,
    CgroupsUnavailable,
    Layout,
    fresh_name,
    sweep_folder,
)

_V1 = "".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,relatime,{name} 0 0\n"
    for name in (*V1_CONTROLLERS, "cpuset", "freezer")
)
_JOINT_V1 = (
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n"
    "cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n"
)
_NAMED = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
_V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate,memory_recursiveprot 0 0\n"
_ROOT = "/dev/vda / ext4 rw,relatime 0 0\ntmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0\n"


@pytest.mark.parametrize(
    ("table", "offered", "version"),
    [
        pytest.param(_ROOT + _V1, "", 1, id="only-version-1"),
        pytest.param(_ROOT + _JOINT_V1, "", 1, id="controllers-mounted-together"),
        pytest.param(_ROOT + _V1 + _NAMED + _V2, "hugetlb", 1, id="hybrid"),
        pytest.param(_ROOT + _V2, "cpuset cpu io memory hugetlb pids rdma", 2, id="only-version-2"),
        pytest.param(_ROOT + _NAMED + _V2, "cpu memory pids", 2, id="version-1-for-names-only"),
    ],
)
def test_the_version_that_has_every_controller_is_used(table: str, offered: str, version: int):
    assert Layout.parse(table, offered).version() == version


@pytest.mark.parametrize(
    ("table", "offered", "said"),
    [
        pytest.param(
            _ROOT + "cgroup /c/memory cgroup rw,memory 0 0\n" + _V2,
            "cpu pids",
            "memory in v1, pids in v2, cpu in v2",
            id="split",
        ),
        pytest.param(
            _ROOT + _V2, "cpu pids", "memory nowhere, pids in v2, cpu in v2", id="memory-is-off"
        ),
        pytest.param(_ROOT, "", "memory nowhere, pids nowhere, cpu nowhere", id="none-at-all"),
    ],
)
def test_where_neither_is_complete_the_remedy_is_named(table: str, offered: str, said: str):
    with pytest.raises(CgroupsUnavailable, match=said) as caught:
        Layout.parse(table, offered).version()
    assert "cgroup_no_v1=all" in caught.value.remedy
    assert "cgroup_enable=memory" in caught.value.remedy


@given(st.dictionaries(st.sampled_from(V1_CONTROLLERS), st.sampled_from(["v1", "v2"])))
def test_no_version_is_used_that_lacks_a_controller(places: dict[str, str]):
    layout = Layout(
        v1={name: f"/c/{name}" for name, place in places.items() if place == "v1"},
        v2="/u",
        v2_controllers=frozenset(name for name, place in places.items() if place == "v2"),
    )
    complete = {
        1: set(V1_CONTROLLERS) <= set(layout.v1),
        2: set(V2_CONTROLLERS) <= layout.v2_controllers,
    }
    if any(complete.values()):
        assert complete[layout.version()]
    else:
        with pytest.raises(CgroupsUnavailable):
            layout.version()


def test_no_name_is_given_twice():
    names = [fresh_name() for _ in range(1_000)]
    assert len(set(names)) == len(names)


def test_a_sweep_takes_what_the_dead_left_and_nothing_else(tmp_path: Path):
    _boot, namespace, pid, start = current_owner().split(" ")
    own = namespace.removeprefix("pid:[").removesuffix("]")
    dead_pid = os.fork()
    if dead_pid == 0:
        os._exit(0)
    os.waitpid(dead_pid, 0)
    left = {
        f"{own}-{dead_pid}-12345-1",  # a process that is gone
        f"{own}-{pid}-{int(start) - 1}-1",  # our number, but another process had it before
    }
    kept = {
        f"{own}-{pid}-{start}-1",  # ours
        f"{int(own) + 1}-{dead_pid}-12345-1",  # of a pid namespace that cannot be seen from here
        "uid-1000",
        "actum-host",
    }
    for name in left | kept:
        (tmp_path / name).mkdir()
    sweep_folder(str(tmp_path))
    assert set(os.listdir(tmp_path)) == kept


def test_a_sweep_of_what_does_not_exist_is_nothing(tmp_path: Path):
    sweep_folder(str(tmp_path / "absent"))
