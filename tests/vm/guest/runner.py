"""Inside a machine with an older kernel and version 2 of the cgroups: the whole local runner.

As root, as a user to whom nothing was delegated, and as one to whom a subtree was. Every check is
one line for `tests/vm/test_kernel_6_1.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import report

from actum import Runtime, kernel
from actum.execution.result import Result
from actum.sandbox import cgroup_v2

MOUNT = "/sys/fs/cgroup"
GRAB = "python3 -c 'x = b\"x\" * (200 << 20)'"
JOIN_REFUSED = ("CGROUP_NOT_JOINABLE",)
#: Found in the list of processes by this number alone.
SLEEP = "98765"


def enforcement(result: Result, limit: str) -> tuple[str, bool]:
    row = next(row for row in result.enforcement if row.limit == limit)
    return row.mechanism, row.tripped


def said(result: Result) -> tuple[object, ...]:
    done = result.result
    return (
        result.outcome.value,
        *((done.exit_code, done.stdout, done.error_reason) if done else ()),
    )


def promises(role: str, groups: str) -> None:
    def tell(check: str, ok: bool, seen: object = "") -> None:
        report.tell(role, check, ok, seen)

    with Runtime.temporary() as runtime:  # the third is one that was prepared
        results = [runtime.exec("shell", stdin="echo out") for _ in range(3)]
        wanted = [(0, "out\n")] * 3
        found = [said(result)[1:3] for result in results]
        tell("prepared ones serve as well", found == wanted, found)
    at_rest = report.groups_below(groups)
    sandboxes = [path for path in at_rest if path.rpartition("/")[2].count("-") == 3]
    tell("and leave no group", sandboxes == [], sandboxes)

    # Made when asked for: what there is of groups then belongs to an execution.
    with Runtime.temporary(pool=False) as runtime:

        def shell(program: str, **limits: object) -> Result:
            settings = {
                f"sandbox.{name}".replace("__", "."): value for name, value in limits.items()
            }
            return runtime.exec("shell", stdin=program, set=settings)

        result = shell("echo out; exit 7")
        tell("exit code and output", said(result)[1:3] == (7, "out\n"), said(result))
        memory, files = enforcement(result, "memory_mb")[0], enforcement(result, "filesystem")[0]
        tell("held by version 2", memory.startswith("cgroup v2 "), memory)
        tell("held by an older Landlock", files.endswith("Landlock ABI 2"), files)

        result = shell("cat /proc/self/cgroup; echo x >/usr/x || echo x >here && cat here")
        tell("sees itself at the root", said(result)[2] == "0::/\nx\n", said(result))

        result = shell(f"{GRAB}; echo survived", memory_mb=64)
        outcome, code, out, reason = said(result)
        killed = (outcome, code, out) == ("RESOURCE_KILLED", 137, "")
        tell("a child's memory ends the tree", killed, said(result))
        tell("by the kernel's own proof", "memory.events oom_kill 0 ->" in str(reason), reason)
        tell("and is on record", enforcement(result, "memory_mb")[1])
        result = shell("kill -9 $$")
        tell(
            "a plain kill is not out of memory", said(result)[0] != "RESOURCE_KILLED", said(result)
        )

        program = f"(trap '' TERM; sleep {SLEEP}) & setsid sleep {SLEEP} & echo out; sleep {SLEEP}"
        result = shell(program, timeout_ms=4_000)
        tell("timed out, output kept", said(result)[::2] == ("TIMED_OUT", "out\n"), said(result))
        tell("no survivors", report.running(SLEEP) == [], report.running(SLEEP))

        two = f"sleep {SLEEP} & sleep {SLEEP} & echo two"
        result = shell(two, processes__max_children=2)
        tell("as many children as granted", "two\n" in str(said(result)[2]), said(result))
        result = shell(f"{two}; sleep 0; echo three", processes__max_children=2)
        tripped = enforcement(result, "max_children")[1]
        tell("and not one more", "three" not in str(said(result)[2]) and tripped, said(result))

        result = shell("echo before; /bin/true; echo after $?", processes__allow_fork=False)
        tripped = enforcement(result, "allow_fork")[1]
        tell("forks forbidden", "after 0" not in str(said(result)[2]) and tripped, said(result))

        threads = (
            "import threading\n"
            "started = [threading.Thread(target=print, args=('t',)) for _ in range(4)]\n"
            "[each.start() for each in started], [each.join() for each in started]\n"
        )
        asked = {"sandbox.processes.max_children": 0}
        result = runtime.exec("python", stdin=threads, set=asked)
        tell("threads are no children", said(result)[1:3] == (0, "t\n" * 4), said(result))

        calls = "import ctypes\nfor n in (425, 470, 470): print(ctypes.CDLL(None).syscall(n, 0, 0))"
        result = runtime.exec("python", stdin=calls)
        denied = [(each.target, each.count) for each in result.denials]
        missing = said(result)[2] == "-1\n" * 3 and denied == [("io_uring_setup", 1), ("470", 2)]
        tell("calls that are not on the list are missing", missing, (said(result), denied))
        result = shell("cd /proc && stat -f -c %T [a-z]* | sort | uniq -c; cat keys; free -m")
        own = str(said(result)[2]).split()
        # The four links lead to processes.
        tell("of /proc only processes are the kernel's", own[:2] == ["4", "proc"], said(result))
        tell("and what it says of memory is ours", own[3:5] == ["tmpfs", "total"], said(result))

        spin = "import time\nwhile time.process_time() < 0.5: pass\n"
        result = shell(f"for n in 1 2; do python3 -c '{spin}' & done; wait", cpu_cores=1)
        tell("two busy children on one core are held back", enforcement(result, "cpu_cores")[1])

        if role == "user":
            moved = report.ask()
            result = shell("echo ran")
            told = (moved, result.result, result.reason_codes) == (True, None, JOIN_REFUSED)
            tell("moved out of the subtree, nothing runs", told, (said(result), result.violations))

        left = report.groups_below(groups)
        tell("no group is left", left == at_rest, left)


def stranger() -> None:
    with Runtime.temporary() as runtime:
        result = runtime.exec("shell", stdin="echo ran")
        local = next(iter(runtime.services.runners.values()))
        rows = {row.limit: row for row in local.capabilities()}
    text = " ".join(violation.message for violation in result.violations)
    command = f"sudo actum host delegate --user {report.USER} --pid $$"
    report.tell("nothing", "refused, nothing ran", result.result is None, said(result))
    report.tell(
        "nothing", "as a limit that cannot hold", "LIMIT_NOT_ENFORCEABLE" in result.reason_codes
    )
    report.tell("nothing", "the remedy is named", command in text, text)
    held = {
        limit for limit in ("memory_mb", "cpu_cores", "max_children") if rows[limit].enforceable
    }
    report.tell(
        "nothing", "the doctor says so too", not held and command in rows["memory_mb"].remedy
    )


def user() -> None:
    report.await_word()
    promises("user", f"{MOUNT}/actum/uid-{report.USER}")


def as_the_remedy_says(pid: int) -> None:
    words = ["host", "delegate", "--user", str(report.USER), "--pid", str(pid)]
    subprocess.run([sys.executable, "-m", "actum.doors.cli.main", *words], check=True)


def move_out() -> None:
    cgroup_v2.move_processes(f"{MOUNT}/actum/uid-{report.USER}/{cgroup_v2.LEAF}", MOUNT)


CLOCK = """
import time
from actum.executors import vdso
closed = vdso.close_clock()
print(closed > 2, "[vvar" in open("/proc/self/maps").read(), time.time() > 0)
"""


def main() -> None:
    here = os.path.abspath(__file__)
    told = subprocess.run([sys.executable, "-c", CLOCK], capture_output=True, text=True)
    clock = told.stdout == "True False True\n"
    report.tell("root", "the pages of the clock can be unmapped", clock, told)
    report.tell("root", "Landlock ABI 2", kernel.landlock_abi() == 2, kernel.landlock_abi())
    promises("root", f"{MOUNT}/actum")
    report.as_user(here, "stranger")
    report.as_user(here, "user", as_the_remedy_says, move_out)


ROLES: dict[str, Callable[[], None]] = {"stranger": stranger, "user": user}

if __name__ == "__main__":
    # Files of root's tools are idmapped, and this kernel cannot do that on tmpfs.
    os.environ["TMPDIR"] = "/tmp/disk"
    ROLES.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
