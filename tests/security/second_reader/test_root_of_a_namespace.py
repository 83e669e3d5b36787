"""A root that is root in a user namespace only, as in many containers, gets no false ending."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can map every user"),
]

#: Every user and group is in it, so that whatever works outside of it works in it.
PROGRAM = """
import ctypes, json, os

def child():
    from actum import Runtime
    script = "import ctypes, os; ctypes.CDLL(None).prctl(4, {dumpable}, 0, 0, 0); os._exit({code})"
    found = []
    with Runtime.temporary() as rt:
        for dumpable in (1, 0):
            for code in (0, 7, 7, 7):
                result = rt.python(script.format(dumpable=dumpable, code=code)).result
                found.append((code, result and result.exit_code))
    print(json.dumps(found), flush=True)

libc = ctypes.CDLL(None, use_errno=True)
parted, mapped = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    if libc.unshare(0x10000000 | 0x20000) != 0:  # CLONE_NEWUSER | CLONE_NEWNS
        os._exit(99)
    os.write(parted[1], b"x")
    os.read(mapped[0], 1)
    child()
    os._exit(0)
os.close(parted[1])
os.read(parted[0], 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{pid}/{name}", "w") as file:
        file.write("0 0 4294967295")
os.write(mapped[1], b"x")
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_tool_that_is_not_dumpable_ends_as_it_did() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert len(found) == 8
    assert all(asked == told for asked, told in found), found
