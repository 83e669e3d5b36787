"""System calls by allow-list: what is not on it is answered as if the kernel lacked it.

Each refused call is made inside by its number. The same call outside, with the same arguments,
reaches the kernel, unless this kernel has no such call.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result
from actum.sandbox.seccomp import FORBIDDEN, QUIET, VIOLATION
from actum.sandbox.system_calls import ALLOWED, NUMBERS
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: Every call that is answered with ENOSYS and recorded.
REFUSED = sorted(NUMBERS.keys() - ALLOWED - {*QUIET, *VIOLATION, *FORBIDDEN})
#: No argument of any of them may be so, and none of them does anything then.
NONSENSE = ("-1",) * 6
#: What no kernel of our time has, or only with some processors.
RETIRED = {
    *("_sysctl", "afs_syscall", "epoll_ctl_old", "epoll_wait_old", "get_kernel_syms"),
    *("get_thread_area", "getpmsg", "lookup_dcookie", "nfsservctl", "putpmsg", "query_module"),
    *("security", "set_thread_area", "tuxcall", "uselib", "vserver", "map_shadow_stack"),
}
#: The newest call of Linux 6.1, the oldest kernel of the tests; memfd_secret can be off.
_NEWEST_OF_6_1 = NUMBERS["set_mempolicy_home_node"]
NEW = {name for name, number in NUMBERS.items() if number > _NEWEST_OF_6_1} | {"memfd_secret"}


def _refused(result: Result) -> list[tuple[str, str, int]]:
    return [(it.kind, it.target, it.count) for it in result.denials]


@pytest.mark.req("004-5", "004-59")
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_not_on_the_list_is_missing(jail: Jail, name: str) -> None:
    call = ("raw", str(NUMBERS[name]), *NONSENSE)
    assert jail.freely(*call) != "ENOSYS" or name in RETIRED | NEW
    result = jail.attempt(*call)
    assert jail.said(result) == "ENOSYS\ncode 0"
    assert _refused(result) == [("syscall", name, 1)]
    assert result.outcome is Outcome.SUCCEEDED


def test_most_of_them_are_there_outside() -> None:
    assert len(REFUSED) > 70
    assert len({*REFUSED} & RETIRED) < 20


@pytest.mark.req("004-5")
@pytest.mark.parametrize("number", [337, 423, 470, 511, 1_000, 2**30 + 39, 2**31 - 1, -1])
def test_numbers_of_the_future_and_of_other_tables_are_missing(jail: Jail, number: int) -> None:
    result = jail.attempt("raw", str(number))
    assert jail.said(result) == "ENOSYS\ncode 0"
    assert _refused(result) == [("syscall_number", str(number % 2**32), 1)]


@pytest.mark.req("004-59")
@pytest.mark.parametrize("name", VIOLATION)
def test_a_call_of_a_break_out_ends_the_tree(jail: Jail, name: str) -> None:
    result = jail.attempt("raw", str(NUMBERS[name]), *NONSENSE)
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert jail.said(result) == ""


_NETLINK_SOCK_DIAG, _NETLINK_AUDIT, _NETLINK_GENERIC = 4, 9, 16
_STREAM, _DGRAM, _RAW, _CLOEXEC = 1, 2, 3, 0o2000000
_THREAD = 0x00010000 | 0x00000800 | 0x00000100  # with CLONE_SIGHAND and CLONE_VM, as it must be

#: Allowed calls with refused arguments -> (the call, the error inside, what is on record)
ARGUMENTS = {
    "netlink for sockets": (("socket", 16, _RAW, _NETLINK_SOCK_DIAG), "EPERM", "socket"),
    "netlink for audit": (("socket", 16, _DGRAM, _NETLINK_AUDIT), "EPERM", "socket"),
    "generic netlink": (("socket", 16, _RAW | _CLOEXEC, _NETLINK_GENERIC), "EPERM", "socket"),
    "raw packets": (("socket", 2, _RAW | _CLOEXEC, 17), "EPERM", "socket"),
    "seqpacket over IP": (("socket", 2, 5, 132), "EPERM", "socket"),
    "ping": (("socket", 2, _DGRAM, 1), "EPROTONOSUPPORT", None),
    "multipath TCP": (("socket", 10, _STREAM, 262), "EPROTONOSUPPORT", None),
    "a pair over IP": (("socketpair", 2, _STREAM, 0, 0), "EPERM", "socketpair"),
    "a pair of datagrams": (("socketpair", 1, _DGRAM, 0, 0), "EACCES", None),
    "a pair of raw sockets": (("socketpair", 1, _RAW | _CLOEXEC, 0, 0), "EACCES", None),
    "a 32-bit memory layout": (("personality", 0x8000008), "EPERM", None),
    "a lease": (("fcntl", 0, 1_024, 0), "EPERM", None),
    "console selection": (("ioctl", 0, 2**32 | 0x541C, 0), "EPERM", None),
}
#: What the same call with other arguments says inside.
PERMITTED = {
    "netlink for routes": (("socket", 16, _RAW | _CLOEXEC, 0), "ok"),
    "TCP": (("socket", 10, _STREAM | _CLOEXEC, 6), "ok"),
    "UDP": (("socket", 2, _DGRAM, 17), "ok"),
    "a pair": (("socketpair", 1, _STREAM, 0, 0), "EFAULT"),  # past the filter: it has no buffer
    "a pair of packets": (("socketpair", 1, 5 | _CLOEXEC, 0, 0), "EFAULT"),
    "which personality": (("personality", 0xFFFFFFFF), "ok"),
    "a 32-bit machine by name": (("personality", 8), "ok"),
    "old release numbers": (("personality", 0x20008), "ok"),
    "flags": (("fcntl", 0, 1, 0), "ok"),
}


def _words(call: tuple[str | int, ...]) -> tuple[str, ...]:
    name, *arguments = call
    return ("raw", str(NUMBERS[str(name)]), *map(str, arguments))


@pytest.mark.req("004-5", "004-53")
@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments_that_no_ordinary_program_needs_are_refused(jail: Jail, what: str) -> None:
    call, error, record = ARGUMENTS[what]
    result = jail.attempt(*_words(call))
    assert jail.said(result) == f"{error}\ncode 0"
    assert _refused(result) == ([("syscall", record, 1)] if record else [])


@pytest.mark.parametrize("what", PERMITTED)
def test_arguments_that_ordinary_programs_need_are_not(jail: Jail, what: str) -> None:
    call, said = PERMITTED[what]
    result = jail.attempt(*_words(call))
    assert jail.said(result) == f"{said}\ncode 0"
    assert result.denials == ()


@pytest.mark.req("004-53", "004-59")
@pytest.mark.parametrize("flag", [0x80, *(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))])
@pytest.mark.parametrize("kind", [17, _THREAD])
def test_no_clone_makes_a_namespace(jail: Jail, flag: int, kind: int) -> None:
    """For threads, too, which the init lets through otherwise."""
    result = jail.attempt("raw", str(NUMBERS["clone"]), str(flag | kind))
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert jail.said(result) == ""


@pytest.mark.req("004-59")
@pytest.mark.parametrize("flag", [0x80, *(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))])
def test_to_leave_a_namespace_ends_the_tree(jail: Jail, flag: int) -> None:
    result = jail.attempt("raw", str(NUMBERS["unshare"]), str(flag))
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert jail.said(result) == ""


def test_to_unshare_what_is_no_namespace_is_a_denial(jail: Jail) -> None:
    call = ("raw", str(NUMBERS["unshare"]), str(0x200))  # CLONE_FS
    assert jail.freely(*call) == "ok"
    result = jail.attempt(*call)
    assert jail.said(result) == "EPERM\ncode 0"
    assert _refused(result) == [("syscall", "unshare", 1)]


@pytest.mark.req("000-11")
def test_a_tool_that_asks_for_every_number_takes_the_room_of_64(jail: Jail) -> None:
    program = """
import ctypes
libc = ctypes.CDLL(None)
for number in range(470, 670): libc.syscall(number)
for _ in range(50): libc.syscall(425, 1, 0)
print("done")
"""
    result = jail.python(program)
    assert jail.said(result) == "done"
    *named, others = _refused(result)
    assert named == [("syscall_number", str(number), 1) for number in range(470, 533)]
    assert others == ("others", "", 187)


@pytest.mark.req("000-11")
def test_a_flood_does_not_keep_the_init_from_its_work(jail: Jail) -> None:
    """Threads are still made, and the tool's own end is seen, while others ask without a pause."""
    program = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
def flood():
    while True:
        libc.syscall(470)
for _ in range(30):
    threading.Thread(target=flood, daemon=True).start()
for _ in range(30):
    thread = threading.Thread(target=int); thread.start(); thread.join()
print("made", flush=True)
os._exit(7)
"""
    result = jail.python(program, timeout="60s")
    assert jail.said(result) == "made"
    assert result.result is not None
    assert result.result.exit_code == 7
    assert [kind for kind, *_ in _refused(result)] == ["syscall_number"]


@pytest.mark.req("004-66")
def test_a_receipt_names_the_filter_and_the_refused_calls(jail: Jail) -> None:
    result = jail.sh("./probe kcmp; ./probe kcmp; ./probe raw 9999", cwd=_with_probe(jail))
    row = next(row for row in result.enforcement if row.limit == "system_calls")
    assert row.tripped
    assert row.mechanism.startswith(f"seccomp: allow-list of {len(ALLOWED)} calls, filter sha256 ")
    receipt = _predicate(result)
    assert receipt["denials"] == {
        "count": 3,
        "kinds": ["syscall", "syscall_number"],
        "system_calls": {"kcmp": 2},
    }
    (signed,) = [row for row in receipt["enforcement"] if row["limit"] == "system_calls"]
    assert signed["mechanism"] == row.mechanism


def test_the_filter_differs_where_forks_are_forbidden(jail: Jail) -> None:
    rows = [
        row.mechanism
        for limits in ({}, {"sandbox.processes.allow_fork": False})
        for row in jail.python("print(1)", limits=limits).enforcement
        if row.limit == "system_calls"
    ]
    assert len({*rows}) == 2


def _predicate(result: Result) -> dict[str, Any]:
    envelope = json.loads(Path(result.receipt_path).read_text())
    predicate: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return predicate


def _with_probe(jail: Jail) -> object:
    jail.attempt("x32")
    return jail.work
