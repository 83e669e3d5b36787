"""Many executions, in a row and at once: nothing grows but the record of them.

`make test` does a tenth; `make soak` does 10,000 in a row and 1,000 at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actum import Result, Runtime
from actum.contract.model import RunnerKind
from actum.runners.local import LocalRunner
from actum.sandbox.cgroup import Layout
from actum.sandbox.spawner_client import Spawner, _Member
from actum.value import plain
from hostile.jail import mounts_below

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

SOAK = os.environ.get("ACTUM_SOAK") == "1"
IN_A_ROW, AT_ONCE = (10_000, 1_000) if SOAK else (1_000, 100)
VERIFIED = 500 if SOAK else 50
_MIB = 1 << 20


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime.temporary() as runtime:
        yield runtime


@dataclass(frozen=True)
class Held:
    """What this process, its spawner and the sandboxes of both hold, but for sandboxes that are
    kept ready: a runtime that was busy lately has more of those, and what belongs to each is known.
    """

    descriptors: int
    spawner_descriptors: int
    threads: int
    processes: int
    groups: int
    mounts: int
    namespaces: int
    sessions: int

    @classmethod
    def now(cls, runtime: Runtime) -> Held:
        below = _below(os.getpid())
        spawner = _spawner_of(runtime)
        heard_of = [*spawner._members]
        ready = len(heard_of) + len(spawner._asked)  # once settled, those asked for are made, too
        own = _namespaces(below[0])
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")) - sum(map(_descriptors, heard_of)),
            spawner_descriptors=len(os.listdir(f"/proc/{below[0]}/fd")),
            threads=len(os.listdir("/proc/self/task")),
            processes=len(below) - ready * _PROCESSES,
            groups=len(_groups()) - ready * len(spawner._folders),
            mounts=len(mounts_below(runtime.settings.root)),
            namespaces=len({link for pid in below for link in _namespaces(pid)} - own)
            - ready * _NAMESPACES,
            sessions=len(list((runtime.settings.home / "session").glob("*"))),
        )


#: Of one sandbox that is ready: the init and the process that will be the tool; their namespaces
#: (pid, mnt, net, ipc, uts, cgroup).
_PROCESSES, _NAMESPACES = 2, 6


def _descriptors(member: _Member) -> int:
    """What the host holds of one that it has heard of: every number there is a descriptor."""
    numbers = [*plain(member.sandbox).values(), member.trees, member.cgroup.oom_event]
    return 1 + sum(type(number) is int and number >= 0 for number in numbers)  # `bool` is no number


def _spawner_of(runtime: Runtime) -> Spawner:
    runner = runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    return runner._spawner


Record = Callable[[str, object], None]


def _percentiles(took: list[float]) -> str:
    ordered = sorted(took)
    p50, p95 = (ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.95))
    return f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return sorted(found)


def _below(pid: int) -> list[int]:
    """Everyone below `pid`, the spawner first."""
    found = []
    for child in _children(pid):
        found += [child, *_below(child)]
    return found


def _namespaces(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/ns/{name}") for name in os.listdir(f"/proc/{pid}/ns")}


def _groups() -> list[str]:
    layout = Layout.of_host()
    mounts = set(layout.v1.values()) if layout.version() == 1 else {layout.v2}
    mark = f"-{os.getpid()}-"
    # os.walk passes over what vanishes meanwhile: other processes have groups there too.
    return [
        f"{folder}/{name}"
        for mount in mounts
        for folder, names, _files in os.walk(f"{mount}/actum")
        for name in names
        if mark in name
    ]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _settled(runtime: Runtime) -> Held:
    """After the sandboxes that replace used ones are there, and used ones are gone: when nothing
    changes for a second. On a busy machine two looks alone can be equal by chance."""
    gc.collect()
    before, same = None, 0
    for _ in range(2_400):
        time.sleep(0.05)
        now = _held(runtime)
        same = same + 1 if now is not None and now == before else 0
        if now is not None and same == 20:
            return now
        before = now
    raise AssertionError(f"it does not come to rest: {before}")


def _comes_to(held: Held, runtime: Runtime) -> None:
    gc.collect()
    deadline = time.monotonic() + 120
    while (now := _held(runtime)) != held:
        assert time.monotonic() < deadline, f"{now} does not become {held}"
        time.sleep(0.05)


def _held(runtime: Runtime) -> Held | None:
    try:
        return Held.now(runtime)
    except (FileNotFoundError, ProcessLookupError):
        return None  # one went as we counted


@pytest.mark.req("000-187", "004-17")
def test_executions_in_a_row_leave_nothing_behind(runtime: Runtime, record_property: Record):
    spawner = 0
    took: list[float] = []
    for number in range(IN_A_ROW):
        if number == IN_A_ROW // 10:  # by then everything that is made once has been made
            held = _settled(runtime)
            spawner = _children(os.getpid())[0]
            resident = _resident_bytes(os.getpid()), _resident_bytes(spawner)
        began = time.monotonic()
        assert runtime.exec("shell", stdin=f"echo {number}; sleep 99 &").ok
        took.append(time.monotonic() - began)
    record_property("figure", f"{IN_A_ROW} in a row: {_percentiles(took)}")
    _comes_to(held, runtime)
    grown = _resident_bytes(os.getpid()) - resident[0], _resident_bytes(spawner) - resident[1]
    # The whole of it is a few pages per thousand; one kept capture each would be far beyond.
    assert max(grown) < 16 * _MIB, grown


@pytest.mark.req("004-76")
@pytest.mark.parametrize("how", ["threads", "tasks"])
def test_executions_at_once_keep_to_the_cap_and_leave_nothing_behind(
    runtime: Runtime, record_property: Record, how: str
):
    runtime.exec("shell", stdin="true")
    asyncio.run(_awaited(runtime, 20))  # its threads stay
    held = _settled(runtime)
    took: list[float] = []
    alive: list[int] = []
    failures: list[str] = []
    counting, living = threading.Lock(), 0

    def hear(_stream: str, chunk: bytes) -> None:
        """A tool has its place from before its first word until after its last one was heard."""
        nonlocal living
        with counting:
            living += chunk.count(b"up")
            alive.append(living)
            living -= chunk.count(b"down")

    def note(result: Result) -> None:
        if not result.ok or not result.result or result.result.stdout != "up\ndown\n":
            failures.append(str(result))
        took.append(time.monotonic() - began)

    script = "echo up; sleep 0.02; echo down # {0}"

    def one(number: int) -> None:
        words = script.format(number)
        note(runtime.exec("shell", stdin=words, timeout="120s", on_output=hear))

    async def one_of_many(number: int) -> None:
        words = script.format(number)
        note(await runtime.aio.exec("shell", stdin=words, timeout="120s", on_output=hear))

    async def all_of_them() -> None:
        await asyncio.gather(*(one_of_many(number) for number in range(AT_ONCE)))

    began = time.monotonic()
    if how == "tasks":
        asyncio.run(all_of_them())
    else:
        threads = [threading.Thread(target=one, args=(number,)) for number in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    record_property("figure", f"{AT_ONCE} at once ({how}), until each ended: {_percentiles(took)}")
    assert failures == []
    assert (len(took), living) == (AT_ONCE, 0)
    assert 1 < max(alive) <= 2 * (os.cpu_count() or 1)
    _comes_to(held, runtime)


async def _awaited(runtime: Runtime, count: int) -> None:
    await asyncio.gather(*(runtime.aio.exec("shell", stdin="true") for _ in range(count)))


@pytest.mark.req("000-187")
def test_a_closed_runtime_holds_nothing():
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    others = _children(os.getpid())  # of other tests in this process
    with Runtime.temporary() as runtime:
        folder = runtime.settings.root
        assert runtime.exec("shell", stdin="echo x").ok
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() <= threads
    assert set(_children(os.getpid())) <= set(others)
    assert _groups() == []
    assert not folder.exists()


def test_verifying_everything_costs_in_proportion(runtime: Runtime):
    """Counted in the database's own instructions, not in time."""
    work = []
    for _ in range(2):
        for _ in range(VERIFIED):
            runtime.exec("shell", stdin="true", set={"sandbox.timeout_ms": 30_000})
        work.append(_instructions(runtime))
    assert work[1] < 2.5 * work[0], work


def _instructions(runtime: Runtime) -> int:
    count = [0]

    def tick() -> int:
        count[0] += 1
        return 0

    connection = runtime.database._connection
    connection.set_progress_handler(tick, 10)
    assert all(finding.passed for finding in runtime.verifier.verify_all())
    connection.set_progress_handler(None, 0)
    return count[0]
