"""The init is the witness of how a tool ended: nothing a tool does may end it, or the spawner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from actum.contract.model import RunnerKind
from actum.runners.local import LocalRunner
from actum.sandbox.host_probe import examine
from actum.sandbox.spawner_client import _GUESS, Spawner
from hostile.jail import Jail, name_of, own_cgroups, until
from hostile.member import asked

pytestmark = pytest.mark.sandbox

#: Makes room by threads, fills it with children, and has them end while they are being counted.
_CHURN = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_barrier_t barrier;
static void *wait_for_all(void *nothing) { pthread_barrier_wait(&barrier); return nothing; }
int main(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int round = 0; round < 12; round++) {
        pthread_t threads[200];
        pthread_barrier_init(&barrier, 0, 201);
        for (int i = 0; i < 200; i++)
            if (pthread_create(&threads[i], &small, wait_for_all, 0)) return 3;
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 200; i++) pthread_join(threads[i], 0);
        int alive = 0;
        for (int i = 0; i < 190; i++) {
            pid_t child = fork();
            if (child == 0) { usleep(20000 + i * 700); _exit(0); }
            alive += child > 0;
        }
        while (alive--) wait(0);
    }
    puts("done");
}
"""


@pytest.fixture(scope="module")
def churn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("churn")
    (folder / "churn.c").write_text(_CHURN)
    subprocess.run(
        ["gcc", "-O1", "-pthread", "-o", folder / "churn", folder / "churn.c"], check=True
    )
    return folder / "churn"


def test_children_that_end_while_they_are_counted_do_not_take_the_init_along(
    jail: Jail, churn: Path
) -> None:
    program = jail.work / "churn"
    program.write_bytes(churn.read_bytes())
    program.chmod(0o755)
    result = jail.sh("exec ./churn", timeout="60s", limits={"sandbox.processes.max_children": 3})
    assert jail.said(result) == "done"
    assert any(denial.target == "child beyond max_children" for denial in result.denials)


def test_a_host_that_gives_up_at_once_does_not_end_the_spawner(jail: Jail) -> None:
    found = examine()
    assert found.cgroups is not None
    spawner = Spawner()
    spawner.equip(found.cgroups)
    make = {"allow_fork": True, "steady": False, "interpreter": False, **_GUESS}
    try:
        given_up = spawner._take(make)  # type: ignore[arg-type]
        process = spawner._process
        assert process is not None
        given_up.discard()
        spawner._take(make).discard()  # type: ignore[arg-type]
        assert spawner._process is process
        assert process.poll() is None
    finally:
        spawner.close()
    assert jail.said(jail.sh("echo next")) == "next"


@pytest.mark.parametrize(("listen", "code"), [([("127.0.0.1", 7777)], 0), ([], 1)])
def test_a_tool_starts_after_its_doors_are_open_however_early_the_host_says_go(
    listen: list[tuple[str, int]], code: int
) -> None:
    """Else it would find them closed; or bind one itself, and be told of as never started."""
    found = examine()
    assert found.cgroups is not None
    bash = os.stat("/usr/bin/bash")
    request = asked(
        "",
        argv=["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7777"],
        executable="/usr/bin/bash",
        executable_device=bash.st_dev,
        executable_inode=bash.st_ino,
        # So many that putting them up takes longer than a shell does to start.
        addresses=[f"198.18.{high}.{low}/32" for high in range(10) for low in range(250)],
        listen=listen,
    )
    spawner = Spawner()
    spawner.equip(found.cgroups)
    try:
        sandbox, cgroup = spawner.launch(request, (0, 0), b"")
        sandbox.go()
        reports, held = [], []
        while not reports or reports[-1]["kind"] not in ("ended", "failed"):
            received = sandbox.receive()
            assert received is not None, reports
            reports.append(received[0])
            held += received[1]  # the doors: open until the tool is gone
        for descriptor in held:
            os.close(descriptor)
        sandbox.discard()
        cgroup.remove()
    finally:
        spawner.close()
    expected = ["listening", "ready", "ended"] if listen else ["ready", "ended"]
    assert [report["kind"] for report in reports] == expected
    assert os.waitstatus_to_exitcode(reports[-1]["wait_status"]) == code


def test_without_its_opener_a_spawner_is_replaced(own_jail: Jail) -> None:
    assert own_jail.said(own_jail.sh("echo first")) == "first"
    runner = own_jail.runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    process = runner._spawner._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    # By name: numbers begin again at the kernel's pid_max, so the lowest may be that of an init.
    (opener,) = [int(pid) for pid in children if name_of(pid) == "opener\n"]
    handle = os.pidfd_open(opener)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [], 10)
    os.close(handle)
    assert own_jail.said(own_jail.sh("echo next")) == "next"


def test_a_crash_inside_is_no_business_of_the_hosts_core_handler(jail: Jail) -> None:
    """At a limit of 1, and of nothing else, the kernel starts no handler."""
    program = """
import resource
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert jail.said(jail.python(program)) == "(1, 1)\n(1, 1)\n(64, 64)"
    assert jail.outside_python(program).endswith("(0, 0)\n(64, 64)")


def test_a_spawner_that_is_killed_leaves_no_groups_behind() -> None:
    found = examine()
    assert found.cgroups is not None
    spawner = Spawner(pool_size=4)
    spawner.equip(found.cgroups)
    make = {"allow_fork": True, "steady": False, "interpreter": False, **_GUESS}
    marks = []

    def groups() -> list[str]:
        """Of these two spawners: sandboxes of other tests wait in this process too."""
        return [each for each in own_cgroups() if any(mark in each for mark in marks)]

    try:
        spawner._take(make).discard()  # type: ignore[arg-type]
        spawner.refill()
        marks.append(spawner._mark)
        process = spawner._process
        assert process is not None
        until(groups)
        process.kill()
        process.wait()
        spawner._take(make).discard()  # type: ignore[arg-type]
        assert spawner._process is not process
        marks.append(spawner._mark)
    finally:
        spawner.close()
    assert len(set(marks)) == 2
    assert groups() == []
