"""What an engine and the kernel say is compared with what was asked for."""

from __future__ import annotations

import pytest

from actum.errors import Refused
from actum.runners.container.container_limits import ContainerLimits, require_inside, require_kept
from actum.runners.container.engine_api import EngineInfo
from actum.runners.container.engine_host import problems_of

LIMITS = ContainerLimits(
    memory_bytes=64 << 20,
    tasks=18,
    cpu_cores=2,
    scratch_bytes=32 << 20,
    artifacts_bytes=20 << 20,
)
STATUS = (
    "Name:\tinit\nUid:\t7\t7\t7\t7\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
    "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t0\n"
)
UIDS = "         0          0 4294967295\n"
DEVICES = "Inter-|   Receive\n face |bytes\n    lo:       0\n sit0:       0\n"
ROUTES = "Iface\tDestination\n"
ADDRESSES = "Main:\n        |-- 127.0.0.1\n           /32 host LOCAL\n"
ADDRESSES6 = "00000000000000000000000000000001 01 80 10 80       lo\n"
V1 = ["67108864\n", "67108864\n", "18\n", "200000\n", "100000\n"]
V2 = ["67108864\n", "0\n", "18\n", "200000 100000\n"]
SPACES = [32 << 20, 32 << 20, 20 << 20]


def inside(
    groups: list[str | None],
    version: int,
    *,
    status: str = STATUS,
    uids: str = UIDS,
    devices: str = DEVICES,
    routes: str = ROUTES,
    addresses: str = ADDRESSES,
    spaces: list[int] | None = None,
) -> None:
    texts = [*groups, status, uids, devices, routes, addresses, ADDRESSES6]
    require_inside(LIMITS, 7, version, texts, spaces or SPACES)


def test_what_was_asked_for_is_accepted() -> None:
    inside([*V1], 1)
    inside([*V2], 2)
    inside([V1[0], None, *V1[2:]], 1)  # a kernel that counts no swap


@pytest.mark.req("004-50")
@pytest.mark.parametrize("version", [1, 2])
def test_each_limit_of_the_groups_is_compared(version: int) -> None:
    right = V1 if version == 1 else V2
    for number in range(len(right)):
        other: list[str | None] = [*right]
        other[number] = "max\n"
        with pytest.raises(Refused) as refused:
            inside(other, version)
        assert refused.value.code == "LIMIT_NOT_ENFORCEABLE"


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": STATUS.replace("CapEff:\t0000000000000000", "CapEff:\t00000000a80425fb")},
        {"status": STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t00000000a80425fb")},
        {"status": STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0")},
        {"status": STATUS.replace("Uid:\t7\t7\t7\t7", "Uid:\t0\t0\t0\t0")},
        {"status": ""},
        {"uids": "0 100000 65536\n"},
        {"devices": DEVICES + "  eth0:       0\n"},
        {"status": STATUS.replace("Seccomp:\t0", "Seccomp:\t2")},
        {"routes": ROUTES + "eth1\t00000000\n"},
        {"addresses": ADDRESSES + "        |-- 10.0.0.2\n           /32 host LOCAL\n"},
        {"devices": ""},
        {"spaces": [12 << 30, 32 << 20, 20 << 20]},
        {"spaces": [32 << 20, 32 << 20, 0]},
    ],
)
def test_privileges_network_and_sizes_are_compared(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused):
        inside([*V1], 1, **wrong)  # type: ignore[arg-type]


KEPT = {
    "Memory": 64 << 20,
    "PidsLimit": 18,
    "Privileged": False,
    "NetworkMode": "none",
    "ReadonlyRootfs": True,
    "NanoCpus": 2_000_000_000,
}


def test_an_engine_that_ignores_a_limit_is_refused() -> None:
    require_kept(LIMITS, {"HostConfig": KEPT})
    for name in KEPT:
        other = {**KEPT, name: 0 if name == "Memory" else None}
        with pytest.raises(Refused, match=name):
            require_kept(LIMITS, {"HostConfig": other})


def info(**changed: object) -> EngineInfo:
    words: dict[str, object] = {"rootless": False, "remaps_users": False, **changed}
    return EngineInfo(name="podman", version="4", runtimes=("crun",), **words)  # type: ignore[arg-type]


def test_engines_that_cannot_hold_a_limit_are_named_with_a_remedy() -> None:
    assert problems_of(info(), "", 1) == {}
    assert problems_of(info(), "crun", 2) == {}
    assert "rootless" in problems_of(info(rootless=True), "", 1)
    assert "users" in problems_of(info(rootless=True), "", 2)
    assert "users" in problems_of(info(remaps_users=True), "", 1)
    assert "kernel of its own" in problems_of(info(), "runsc", 1)["runtime"][0]
    problem, remedy = problems_of(info(), "other", 1)["runtime"]
    assert "crun" in problem
    assert "[docker] runtime" in remedy
