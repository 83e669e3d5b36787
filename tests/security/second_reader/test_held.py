"""Tried and held: upper halves of arguments, floods of refused calls, nonsense for the resolver."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum import Outcome
from actum.sandbox.egress import dns
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_HIGH = 1 << 32
#: System call and arguments, each with bits above those that the kernel takes.
_CALLS = {
    "socket AF_UNIX": (41, _HIGH | 1, 1, 0),
    "socket AF_VSOCK": (41, _HIGH | 40, 1, 0),
    "socketpair of datagrams": (53, 1, _HIGH | 2, 0),
    "clone into a user namespace": (56, _HIGH | 0x10000000 | 17, 0, 0, 0, 0),
    "chmod set-uid": (90, "file", _HIGH | 0o4755),
    "chmod set-uid, sixteen bits": (90, "file", 0x10000 | 0o4755),
    "creat set-gid": (85, "other", _HIGH | 0o2755),
    "open set-uid": (2, "other", _HIGH | 0o101, 0o4755),
    "personality": (135, _HIGH | 0x0040000),
    "lease": (72, 0, _HIGH | 1_024, 0),
    "prlimit of the init": (302, _HIGH | 1, 7, 0, 0),
}
_CALL = """
import ctypes, errno, os, sys
open("file", "w").close()
arguments = [ctypes.c_char_p(each.encode()) if not each.lstrip("-").isdigit()
             else ctypes.c_ulong(int(each)) for each in sys.argv[1:]]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
done = libc.syscall(*arguments)
if done == 0 and sys.argv[1] == "56" and os.getpid() == 1:
    os._exit(0)
print("done" if done >= 0 else errno.errorcode[ctypes.get_errno()])
print(oct(os.stat("file").st_mode & 0o6000), os.path.exists("other"))
"""


@pytest.mark.req("004-53")
@pytest.mark.parametrize("call", _CALLS)
def test_upper_halves_of_arguments_hide_nothing_from_the_filter(jail: Jail, call: str) -> None:
    arguments = tuple(str(each) for each in _CALLS[call])
    result = jail.python(_CALL, *arguments)
    if call == "clone into a user namespace":
        assert result.outcome is Outcome.POLICY_VIOLATION
        return
    said = jail.said(result).splitlines()
    assert said[0] in {"EPERM", "EACCES"}, said
    assert said[1] == "0o0 False"


def test_the_same_calls_without_what_is_refused_work(jail: Jail) -> None:
    for call in ((41, 2, 1, 0), (90, "file", 0o755), (135, 0xFFFFFFFF), (72, 0, 1, 0)):
        said = jail.said(jail.python(_CALL, *(str(each) for each in call)))
        assert said.splitlines()[0] == "done"


def test_a_flood_of_refused_calls_does_not_outlast_the_deadline(jail: Jail) -> None:
    program = """
import ctypes, threading
libc = ctypes.CDLL(None)
def flood():
    while True:
        libc.chroot(b"/")
for _ in range(20):
    threading.Thread(target=flood, daemon=True).start()
flood()
"""
    result = jail.python(program, timeout="2s")
    assert result.outcome == "TIMED_OUT"
    (denial,) = result.denials
    assert denial.target == "chroot"
    assert denial.count > 64  # all are counted, and take the room of one


@settings(database=None)  # the second run, as an ordinary user, cannot write one here
@given(packet=st.binary(max_size=600))
def test_no_question_breaks_the_resolver(packet: bytes) -> None:
    question = dns.parse(packet)
    if question is not None:
        reply = dns.answer(question, None, exists=False)
        assert len(reply) <= len(packet)
        assert "\n" not in question.name


@settings(database=None)
@given(labels=st.lists(st.binary(min_size=1, max_size=63), min_size=1, max_size=8))
def test_a_name_is_plain_text_or_no_name(labels: list[bytes]) -> None:
    name = b"".join(bytes([len(label)]) + label for label in labels)
    question = dns.parse(b"\0\1\1\0\0\1\0\0\0\0\0\0" + name + b"\0\0\1\0\1")
    assert question is not None
    assert set(question.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def test_nothing_is_open_but_the_three_streams(jail: Jail) -> None:
    program = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
    assert jail.said(jail.python(program)) == "[0, 1, 2]"
