"""Inside a machine with version 2 of the cgroups alone: what a group promises, seen from within.

As root, as a user to whom nothing was delegated, as one to whom a subtree was, and as root of a
container. Every check is one line for `tests/vm/test_cgroup_v2.py`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable

import report

from actum import kernel
from actum.errors import Refused
from actum.sandbox import cgroup_v2, delegate
from actum.sandbox.cgroup import CgroupsUnavailable, Layout, fresh_name, read
from actum.sandbox.cgroup_v2 import Group, Subtree
from actum.sandbox.sweep import sweep_groups

MIB = 1 << 20
MOUNT = "/sys/fs/cgroup"
TOP = f"{MOUNT}/actum/uid-{report.USER}"


def born_in(group: Group, act: Callable[[], int]) -> int:
    """Start `act` inside the group, as an init does; returns the pid."""
    door = os.open(group._folder, os.O_RDONLY | os.O_DIRECTORY)
    pid = kernel.clone_into_cgroup(door)
    if pid == 0:
        os._exit(act())
    os.close(door)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def limited(subtree: Subtree, *, children: int = 2) -> Group:
    group = subtree.make(fresh_name())
    group.limit(memory_bytes=64 * MIB, cpu_cores=1, children=children)
    return group


def folder_of(group: Group) -> str:
    return group._folder


def grab_memory() -> int:
    block = bytearray(200 * MIB)
    block[::4096] = b"x" * len(block[::4096])
    return 0


def in_a_grandchild() -> int:
    child = os.fork()
    if child == 0:
        os._exit(grab_memory())
    os.waitpid(child, 0)
    time.sleep(5)
    return 7  # only if the loss of its child was survived


def fork_until_refused() -> int:
    made = 0
    while True:
        try:
            child = os.fork()
        except OSError as error:
            return made if error.errno == errno.EAGAIN else 99
        if child == 0:
            time.sleep(60)
            os._exit(0)
        made += 1


def spin() -> int:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    return 0


def rest() -> int:
    time.sleep(600)
    return 0


def own_group() -> str:
    return read("/proc/self/cgroup").split("::")[1].strip()


def events_of(group: Group) -> list[tuple[int, int]]:
    poll = select.poll()
    poll.register(group.oom_event, group.oom_poll)
    return poll.poll(2_000)


def promises(role: str, subtree: Subtree) -> None:
    """The same for every user that may have groups."""

    def tell(check: str, ok: bool, seen: object = "") -> None:
        report.tell(role, check, ok, seen)

    group = limited(subtree)
    folder = folder_of(group)
    wanted = {"memory.max": str(64 * MIB), "pids.max": "3", "cpu.max": "100000 100000"}
    if os.path.exists(f"{folder}/memory.swap.max"):
        wanted["memory.swap.max"] = "0"
    found = {name: read(f"{folder}/{name}").strip() for name in wanted}
    tell("limits are in force", found == wanted, found)

    before = own_group()
    ours, theirs = os.pipe()
    status = status_of(born_in(group, lambda: os.write(theirs, own_group().encode()) and 0))
    seen = os.read(ours, 4096).decode()
    tell("born inside", status == 0 and seen.endswith(os.path.basename(folder)), seen)
    tell("its parent stays outside", own_group() == before and seen != before, own_group())

    poll = select.poll()
    poll.register(group.oom_event, group.oom_poll)
    tell("no event without a reason", poll.poll(0) == [] and group.oom_kills() == 0)
    status_of(born_in(group, spin))
    usage = group.usage()
    tell("usage is counted", usage.cpu_ns > 0 and bool(usage.memory_peak_bytes), usage)
    group.remove()
    tell("an idle group is removed", not os.path.exists(folder))

    group = limited(subtree)
    status = status_of(born_in(group, grab_memory))
    events, usage = events_of(group), group.usage()
    tell("out of memory kills", status == -signal.SIGKILL, status)
    tell("out of memory is heard", bool(events) and group.oom_heard(), events)
    proof = f"memory.events oom_kill 0 -> {usage.oom_kills}"
    tell("out of memory is proven", usage.oom_kills > 0 and usage.oom_proof == proof, usage)
    group.remove()

    group = limited(subtree)
    status = status_of(born_in(group, in_a_grandchild))
    tell("a child's memory takes the whole tree", status == -signal.SIGKILL, status)
    tell("a child's memory is proven", group.oom_kills() > 0, group.oom_kills())
    group.remove()

    group = limited(subtree)
    pid = born_in(group, rest)
    os.kill(pid, signal.SIGKILL)
    status = status_of(pid)
    tell("a plain kill is not out of memory", status == -9 and group.oom_kills() == 0, status)
    group.remove()

    group = limited(subtree, children=2)
    status = status_of(born_in(group, fork_until_refused))
    usage = group.usage()
    tell("children are counted exactly", status == 2, status)
    tell("a refused child is counted", usage.forks_refused > 0, usage)
    folder = folder_of(group)
    alive = read(f"{folder}/cgroup.procs").split()
    group.remove()
    gone = not os.path.exists(folder) and not any(report.runs(pid) for pid in alive)
    tell("removal ends survivors", len(alive) == 2 and gone, alive)

    # The kernel kills whatever clone3 puts into a group that once got cgroup.kill.
    group = limited(subtree)
    status = status_of(born_in(group, lambda: 5))
    tell("the next group is a fresh one", status == 5, status)
    kept = folder_of(group)
    orphan = os.fork()
    if orphan == 0:
        limited(subtree)
        os._exit(0)
    os.waitpid(orphan, 0)
    left = [name for name in report.groups_below(subtree.folder) if f"-{orphan}-" in name]
    sweep_groups()
    after = report.groups_below(subtree.folder)
    tell("what a dead process left is swept away", len(left) == 1 and left[0] not in after, left)
    tell("a living process's group is not", kept in after, after)
    group.remove()


def stranger(role: str) -> None:
    try:
        Subtree.prepare(Layout.of_host())
    except CgroupsUnavailable as error:
        command = f"sudo actum host delegate --user {report.USER} --pid $$"
        report.tell(role, "refused", True, error)
        report.tell(role, "the remedy is named", command in error.remedy, error.remedy)
    else:
        report.tell(role, "refused", False)


def user() -> None:
    report.await_word()
    subtree = Subtree.prepare(Layout.of_host())
    report.tell("user", "lives in the subtree", subtree.folder == TOP, subtree.folder)
    promises("user", subtree)
    refused = []
    for name in ("memory.max", "pids.max", "cpu.max"):
        try:
            os.close(os.open(f"{TOP}/{name}", os.O_WRONLY))
        except PermissionError:
            refused.append(name)
    report.tell("user", "the subtree's own limits stay root's", len(refused) == 3, refused)
    try:
        os.mkdir(f"{MOUNT}/actum/of-mine")
    except PermissionError as error:
        report.tell("user", "nothing outside the subtree", True, error)


def scope() -> None:
    """As `systemd-run --user --scope -p Delegate=yes` leaves it: a folder of the user's own, with
    the command and its shell at the top of it."""
    report.await_word()
    bystander = os.fork()
    if bystander == 0:
        os._exit(rest())
    subtree = Subtree.prepare(Layout.of_host())
    place = read(f"/proc/{bystander}/cgroup").strip()
    report.tell("scope", "its processes move to a leaf", place.endswith(cgroup_v2.LEAF), place)
    group = limited(subtree)
    status = status_of(born_in(group, grab_memory))
    report.tell("scope", "memory is limited", status == -9 and group.oom_kills() > 0, status)
    group.remove()
    again = Subtree.prepare(Layout.of_host())
    report.tell("scope", "a second process finds the same place", again == subtree, again)
    os.kill(bystander, signal.SIGKILL)


def container() -> None:
    """Root, but of a part: its root is a group like any other to the kernel."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.umount_detach(MOUNT)
    kernel.mount("cgroup2", MOUNT, "cgroup2", 0)
    subtree = Subtree.prepare(Layout.of_host())
    report.tell("container", "groups below its own root", subtree.folder == MOUNT, subtree.folder)
    group = limited(subtree)
    status = status_of(born_in(group, grab_memory))
    report.tell("container", "memory is limited", status == -9 and group.oom_kills() > 0, status)
    group.remove()
    try:
        delegate.delegate(report.USER, report.USER)
    except Refused as error:
        report.tell("container", "nothing to delegate there", True, error)


def hand_over_scope(pid: int) -> None:
    folder = f"{MOUNT}/user.scope"
    os.mkdir(folder)
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(f"{folder}/{name}", report.USER, report.USER)
    with open(f"{folder}/cgroup.procs", "w") as file:
        file.write(str(pid))


def revoking() -> None:
    left = f"{TOP}/{fresh_name()}"
    os.mkdir(left)
    try:
        delegate.revoke(report.USER)
    except Refused as error:
        whole = error.code == "DELEGATION_IN_USE" and os.path.isdir(f"{TOP}/{cgroup_v2.LEAF}")
        report.tell("root", "no revoking under a sandbox", whole, error)
    os.rmdir(left)
    shell = os.fork()
    if shell == 0:
        os._exit(rest())
    delegate.delegate(report.USER, report.USER, shell)
    place = read(f"/proc/{shell}/cgroup").strip()
    delegate.revoke(report.USER)
    alive = os.waitpid(shell, os.WNOHANG) == (0, 0)
    report.tell("root", "the shell is moved in", TOP.removeprefix(MOUNT) in place, place)
    report.tell("root", "revoked, and the shell lives", alive and not os.path.exists(TOP))
    os.kill(shell, signal.SIGKILL)


def landlock_is_missed() -> None:
    from actum.runners.local import LocalRunner

    runner = LocalRunner()
    rows = {row.limit: row for row in runner.capabilities()}
    runner.close()
    files = rows["filesystem"]
    ok = not files.enforceable and "landlock" in files.remedy and rows["memory_mb"].enforceable
    report.tell("root", "a kernel without Landlock is reported", ok, files)


def main() -> None:
    here = os.path.abspath(__file__)
    layout = Layout.of_host()
    report.tell("root", "version 2", layout.version() == 2, layout)
    report.as_user(here, "nothing")
    promises("root", Subtree.prepare(layout))
    delegate.delegate(report.USER, report.USER)
    report.as_user(here, "outside")
    report.as_user(here, "user", lambda pid: bool(delegate.delegate(report.USER, report.USER, pid)))
    report.as_user(here, "scope", hand_over_scope)
    container_pid = os.fork()
    if container_pid == 0:
        os.mkdir(f"{MOUNT}/box")
        with open(f"{MOUNT}/box/cgroup.procs", "w") as file:
            file.write("0")
        container()
        os._exit(0)
    os.waitpid(container_pid, 0)
    revoking()
    if kernel.landlock_abi() == 0:
        landlock_is_missed()


ROLES: dict[str, Callable[[], None]] = {
    "nothing": lambda: stranger("nothing"),
    "outside": lambda: stranger("outside"),
    "user": user,
    "scope": scope,
}

if __name__ == "__main__":
    ROLES.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
