"""A process without free descriptors gets a clear error, and loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.sandbox

_PROGRAM = """
import contextlib, json, os, resource, threading, time
from actum import Runtime
from actum.errors import SandboxUnavailable

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048))  # Actum raises the soft one

def workers():
    return {each.name for each in threading.enumerate()} - {"MainThread"}

told = set()
with Runtime.temporary() as rt:
    for _ in range(3):
        rt.python("1").check()
        time.sleep(0.1)
    before, opened = workers(), len(os.listdir("/proc/self/fd"))
    for spare in (0, 1, 2, 3, 5, 8):
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(spare):
            os.close(held.pop())
        for _ in range(3):
            try:
                told.add(str(rt.exec("shell", stdin=b"true").outcome))
            except SandboxUnavailable as fault:
                told.add(fault.message)
            except OSError as error:
                told.add(error.strerror)
            time.sleep(0.02)
        for descriptor in held:
            os.close(descriptor)
    for _ in range(8):
        rt.python("1").check()
        time.sleep(0.1)
    print(json.dumps([sorted(told), sorted(before - workers()),
                      len(os.listdir("/proc/self/fd")) - opened]))
"""


def test_what_could_not_be_held_is_let_go_and_the_next_one_is_served() -> None:
    words = [sys.executable, "-c", _PROGRAM]
    answered = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    told, ended, kept = json.loads(answered.stdout)
    assert "Exception in thread" not in answered.stderr
    assert ended == []
    assert kept < 40  # some more sandboxes are kept ready
    nothing_left = ("Too many open files", "This process has no descriptors left for a sandbox.")
    assert set(nothing_left) & set(told), told
    assert set(told) <= {"SUCCEEDED", *nothing_left}
