"""Memory is counted over the whole tree and wherever it can hide, with the kernel's own proof."""

from __future__ import annotations

import pytest

from actum import Outcome, Result
from hostile.jail import Jail, alive, marker

pytestmark = pytest.mark.sandbox

MIB = 1 << 20

HIDING_PLACES = {
    "the tool itself": "x = bytearray(300 << 20)",
    "one child": "import os\nif os.fork() == 0: x = bytearray(300 << 20); os._exit(0)\nos.wait()",
    "many children together": """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(30 << 20)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
""",
    "scratch files": """
import os, time
for folder in ('/tmp', '/dev/shm'):
    with open(folder + '/f', 'wb') as file:
        try:
            while True: file.write(bytes(1 << 20)); file.flush()
        except OSError: pass
x = bytearray(40 << 20)
""",
    "an anonymous file": """
import os
fd = os.memfd_create('x')
while True: os.write(fd, bytes(1 << 20))
""",
    "shared memory": """
import mmap
m = mmap.mmap(-1, 300 << 20)
for at in range(0, 300 << 20, 4096): m[at] = 1
""",
    "pipes": """
import fcntl, os
held = []
for _ in range(400):
    r, w = os.pipe(); os.set_blocking(w, False); held.append((r, w))
    try:
        fcntl.fcntl(w, 1031, 1 << 20)
        while True: os.write(w, bytes(65536))
    except OSError: pass
x = bytearray(60 << 20)
""",
    "system V shared memory": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
key = libc.shmget(0, 300 << 20, 0o1600)
at = libc.shmat(key, None, 0)
ctypes.memset(at, 1, 300 << 20)
""",
}


@pytest.mark.req("000-36", "000-86", "004-3", "004-13", "004-50", "000-12")
@pytest.mark.parametrize("place", HIDING_PLACES)
def test_too_much_memory_is_found_in(jail: Jail, place: str) -> None:
    mark = marker()
    program = f"import subprocess, os\nsubprocess.Popen(['sleep', '{mark}'])\n"
    program += HIDING_PLACES[place] + "\nprint('survived', flush=True)\nimport time; time.sleep(20)"
    result = jail.python(program, limits={"sandbox.memory_mb": 64})
    _killed_for_memory(result)
    if place != "one child":  # whose parent may say so, in the instant before it is killed as well
        assert "survived" not in (result.result.stdout if result.result else "")
    assert alive(mark) == []


def _killed_for_memory(result: Result) -> None:
    assert result.outcome is Outcome.RESOURCE_KILLED
    assert result.result is not None
    assert (result.result.status, result.result.exit_code) == ("killed", 137)
    assert "oom_kill" in (result.result.error_reason or "")
    row = next(row for row in result.enforcement if row.limit == "memory_mb")
    assert row.tripped
    assert row.peak is not None
    assert row.peak >= 60


@pytest.mark.req("000-86")
def test_a_shell_that_hides_its_childs_death_is_killed_all_the_same(jail: Jail) -> None:
    script = "python3 -c 'x = bytearray(300 << 20)' || true; echo went on; sleep 20"
    result = jail.sh(script, limits={"sandbox.memory_mb": 64})
    _killed_for_memory(result)


@pytest.mark.req("000-180")
def test_what_fits_is_let_live_and_measured(jail: Jail) -> None:
    result = jail.python("x = bytearray(40 << 20); print(len(x))", limits={"sandbox.memory_mb": 96})
    assert result.outcome is Outcome.SUCCEEDED
    rows = {row.limit: row for row in result.enforcement}
    peak, cpu = rows["memory_mb"].peak, rows["cpu_cores"].peak
    assert peak is not None
    assert 40 <= peak <= 96
    assert not rows["memory_mb"].tripped
    assert cpu is not None
    assert cpu > 0


@pytest.mark.req("004-24")
def test_one_sandboxs_memory_is_not_held_against_the_next(jail: Jail) -> None:
    fill = "head -c 30M /dev/zero > /tmp/f; head -c 30M /dev/zero > /dev/shm/f; echo fits"
    for _ in range(3):
        assert jail.said(jail.sh(fill, limits={"sandbox.memory_mb": 96})) == "fits"


def test_socket_buffers_are_memory_too(jail: Jail) -> None:
    program = """
import socket
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen(512)
held, queued = [], 0
for _ in range(200):
    client = socket.socket(); client.connect(listener.getsockname()); server, _ = listener.accept()
    client.setblocking(False); held += [client, server]
    try:
        while True: queued += client.send(bytes(65536))
    except BlockingIOError: pass
print(queued >> 20)
"""
    result = jail.python(program, limits={"sandbox.memory_mb": 64})
    assert result.outcome is Outcome.RESOURCE_KILLED or int(jail.said(result)) <= 96
