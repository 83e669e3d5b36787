"""System calls that have no business in a tool. Each one works outside; none does inside."""

from __future__ import annotations

import pytest

from actum import Outcome
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: What a kernel says that was built without something; then the filter's own word must differ.
NOT_BUILT_IN = {"ENOSYS", "EAFNOSUPPORT", "ENODEV"}

#: Calls that only a break-out would make -> what the same call says outside.
VIOLATIONS = {
    "mount": {"ok"},
    "umount2-only": {"ok", "EINVAL"},
    "pivot_root": {"ENOENT"},
    "open_tree": {"ok"},
    "fsopen": {"ok"},
    "move_mount": {"ENOENT", "EBADF"},
    "mount_setattr": {"ok", "EBADF"},
    "setns": {"EBADF"},
    "bpf": {"EBADF"},
    "open_by_handle_at": {"EINVAL", "EBADF", "EPERM"},
    "swapon": {"EPERM", "ENOENT"},
    "init_module": {"EPERM", "EBADF", "ENOSYS"},
    "kexec_load": {"EPERM", "ENOSYS"},
    "iopl": {"EINVAL", "ENOSYS", "EPERM"},
    "unshare": {"ok"},  # into a new user namespace, as the next one
    "clone": {"ok"},
    **{name: {"ok"} | NOT_BUILT_IN for name in ("add_key", "keyctl", "request_key")},
    "userfaultfd": {"ok"} | NOT_BUILT_IN,
}
_CALLS = {"umount2-only": "umount2", "init_module": "finit_module"}

#: Refused with EPERM, and on record as denials of these calls.
FORBIDDEN = {
    "ptrace": "ptrace",
    "AF_PACKET": "socket",
    "AF_VSOCK": "socket",
    "AF_ALG": "socket",
    "AF_INET-raw": "socket",
    "AF_INET6-raw": "socket",
}

#: Refused as if the kernel had no such call, and on record. `test_allow_list.py` has all of them;
#: these work outside with arguments that make sense.
MISSING = (
    *("process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "chroot"),
    *("name_to_handle_at", "io_uring_setup", "perf_event_open"),
)

#: Refused without a record: C libraries try these and fall back.
QUIET = {
    "personality": "EPERM",
    "clone3": "ENOSYS",
    "AF_UNIX": "EACCES",
    "memfd-huge": "EPERM",
}


@pytest.mark.req("004-59", "004-5")
@pytest.mark.parametrize("act", VIOLATIONS)
def test_a_call_that_only_a_break_out_makes_ends_the_tool(jail: Jail, act: str) -> None:
    assert jail.freely(act) in VIOLATIONS[act]
    result = jail.attempt(act)
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert result.result is not None
    assert result.result.status == "error"
    assert result.result.stdout == ""  # the script did not go on after the call
    assert f"system call {_CALLS.get(act, act)}" in (result.result.error_reason or "")


@pytest.mark.req("004-5")
@pytest.mark.parametrize("act", [*FORBIDDEN, *MISSING])
def test_a_refused_call_fails_and_is_on_record(jail: Jail, act: str) -> None:
    assert jail.freely(act) in {"ok"} | NOT_BUILT_IN
    result = jail.attempt(act)
    error = "EPERM" if act in FORBIDDEN else "ENOSYS"
    assert jail.said(result) == f"{error}\ncode 0"
    (denial,) = result.denials
    assert (denial.kind, denial.target) == ("syscall", FORBIDDEN.get(act, act))
    assert {row.limit: row.tripped for row in result.enforcement}["system_calls"]


@pytest.mark.req("004-5")
@pytest.mark.parametrize("act", QUIET)
def test_a_quietly_refused_call_fails(jail: Jail, act: str) -> None:
    assert jail.freely(act) in {"ok"} | NOT_BUILT_IN
    result = jail.attempt(act)
    assert jail.said(result) == f"{QUIET[act]}\ncode 0"
    assert result.denials == ()


@pytest.mark.req("004-5")
def test_the_32_bit_system_call_table_kills_the_caller(jail: Jail) -> None:
    assert jail.freely("int80") == "ok"
    assert jail.said(jail.attempt("int80")) == "code 159"  # 128 + SIGSYS


def test_the_x32_system_call_table_is_not_there(jail: Jail) -> None:
    assert jail.said(jail.attempt("x32")) == "ENOSYS\ncode 0"


@pytest.mark.parametrize("act", ["hugepage", "shmget-huge"])
def test_huge_pages_which_no_memory_limit_counts_are_refused(jail: Jail, act: str) -> None:
    # Outside the answer depends on the host's pool; inside it must be the filter's.
    assert jail.freely(act, namespaces=False) in {"ok", "ENOMEM", "EPERM"}
    assert jail.said(jail.attempt(act)) == "EPERM\ncode 0"


def test_keystrokes_cannot_be_pushed_into_a_terminal(jail: Jail) -> None:
    """Outside the file on stdin is asked (and is no terminal); inside the question is refused."""
    assert jail.freely("TIOCSTI", namespaces=False) in {"ENOTTY", "EIO", "EPERM", "ok"}
    result = jail.sh("./probe TIOCSTI < /dev/null", cwd=_with_probe(jail))
    assert jail.said(result) == "EPERM"
    assert jail.said(jail.sh("ls /dev/tty /dev/pts /dev/ptmx 2>/dev/null; true")) == ""


def _with_probe(jail: Jail) -> object:
    jail.attempt("x32")
    return jail.work


KERNEL_FILES = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/self/oom_score_adj",
    "/proc/self/mem",
    "/proc/self/setgroups",
    "/proc/self/uid_map",
]


NOT_THERE = {"/proc/sys/kernel/core_pattern"}


@pytest.mark.req("004-53", "004-5")
@pytest.mark.parametrize("path", KERNEL_FILES)
def test_no_file_of_the_kernel_can_be_opened_for_writing(jail: Jail, path: str) -> None:
    script = f"import os\ntry: os.open({path!r}, os.O_WRONLY); print('OPEN')\n"
    script += "except OSError as e: print(e.strerror)"
    assert jail.outside_python(script) in {"OPEN", "Permission denied"}  # it exists outside
    refused = {"Read-only file system", "Permission denied"}
    if path in NOT_THERE:
        refused = {"No such file or directory"}
    assert jail.said(jail.python(script)) in refused


def test_neither_sysfs_nor_any_cgroup_file_is_there(jail: Jail) -> None:
    script = "ls /sys/kernel /sys/fs/cgroup 2>/dev/null; find / -name release_agent 2>/dev/null"
    assert jail.outside("ls /sys/kernel") != ""
    assert jail.said(jail.sh(script + "; true")) == ""


def test_the_tools_own_limits_can_still_be_lowered(jail: Jail) -> None:
    assert jail.said(jail.attempt("prlimit-self")) == "ok\ncode 0"


@pytest.mark.parametrize("act", ["prlimit-init", "prlimit-parent", "ptrace-init"])
def test_another_process_cannot_be_limited_or_traced(jail: Jail, act: str) -> None:
    result = jail.attempt(act)
    assert jail.said(result) == "EPERM\ncode 0"
    assert result.outcome is Outcome.SUCCEEDED  # and the init is alive to say so


@pytest.mark.req("004-53")
def test_no_privilege_can_be_regained(jail: Jail) -> None:
    assert jail.said(jail.attempt("regain-root")) in {"EPERM\ncode 0", "EINVAL\ncode 0"}
    assert jail.freely("regain-root") == "ok"
    setuid = jail.said(jail.sh("find /usr/bin -perm -4000 | wc -l"))
    assert int(setuid) > 0  # they are there, and help nobody:
    script = "grep -c nosuid /proc/self/mounts; grep -v nosuid /proc/self/mounts; true"
    count, *others = jail.said(jail.sh(script)).splitlines()
    assert int(count) > 5
    assert others == []
