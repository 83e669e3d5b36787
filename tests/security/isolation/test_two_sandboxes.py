"""Two sandboxes at once are alone, each of them."""

from __future__ import annotations

import os
from threading import Thread

import pytest

from actum import Result
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: The first does something and waits; the second looks for it. Both share a working directory,
#: through which they tell each other that they are ready.
WAIT = """
import os, time
def say(name): open(name, 'w').close()
def await_(name):
    until = time.monotonic() + 20
    while not os.path.exists(name) and time.monotonic() < until: time.sleep(0.005)
"""

MEETINGS = {
    "a loopback port": (
        "import socket; s = socket.create_server(('127.0.0.1', 47123))",
        "import socket; socket.create_connection(('127.0.0.1', 47123), 2); print('MET')",
    ),
    "the same port twice": (
        "import socket; s = socket.create_server(('127.0.0.1', 47124))",
        "import socket; s = socket.create_server(('127.0.0.1', 47124)); s.close()",
    ),
    "shared memory files": (
        "open('/dev/shm/x', 'w').close()",
        "print('MET' if os.path.exists('/dev/shm/x') else '')",
    ),
    "scratch files": (
        "open('/tmp/x', 'w').close()",
        "print('MET' if os.path.exists('/tmp/x') else '')",
    ),
    "system V shared memory": (
        "import ctypes; print(ctypes.CDLL(None).shmget(4711, 4096, 0o1666) >= 0 and 'made')",
        "import ctypes; print('MET' if ctypes.CDLL(None).shmget(4711, 4096, 0o666) >= 0 else '')",
    ),
    "a lock on a scratch file": (
        "import fcntl; f = open('/tmp/l', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "import fcntl; f = open('/tmp/l', 'w'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    ),
    "processes": (
        "open('pid', 'w').write(str(os.getpid()))",
        """
for p in os.listdir('/proc'):
    if p.isdigit() and b'FIRST' in open(f'/proc/{p}/cmdline', 'rb').read(): print('MET')
""",
    ),
    "signals": (
        "",
        """
for p in range(2, 400):
    try:
        if p != os.getpid(): os.kill(p, 9); print('MET')
    except OSError: pass
""",
    ),
    "host names": (
        "",
        "import socket\ntry: socket.sethostname('changed'); print('MET')\nexcept OSError: pass",
    ),
    "artifacts": (
        "open('/artifacts/x', 'w').close()",
        "print('MET' if os.path.exists('/artifacts/x') else '')",
    ),
}


@pytest.mark.req("004-5", "004-24")
@pytest.mark.parametrize("place", MEETINGS)
def test_they_do_not_meet_at(jail: Jail, place: str) -> None:
    first, second = MEETINGS[place]
    results: dict[str, Result] = {}

    def run(name: str, program: str) -> None:
        results[name] = jail.python(program, name, timeout="30s")

    one = f"{WAIT}\n{first}\nsay('first-ready'); await_('second-done')"
    two = f"{WAIT}\nawait_('first-ready')\n{second}\nprint('looked'); say('second-done')"
    threads = [Thread(target=run, args=("FIRST", one)), Thread(target=run, args=("SECOND", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = jail.said(results["SECOND"])
    assert "MET" not in said
    if place != "a loopback port":  # there the refusal is an exception
        assert said.endswith("looked")
    assert results["FIRST"].ok


def test_a_lock_is_seen_where_both_were_given_the_file(jail: Jail) -> None:
    """The positive control of the one above, through the directory that they share."""
    first = "import fcntl; f = open('l', 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    second = first.replace("LOCK_EX)", "LOCK_EX | fcntl.LOCK_NB)")
    results: list[Result] = []
    one = f"{WAIT}\n{first}\nsay('first-ready'); await_('second-done')"
    two = f"{WAIT}\nawait_('first-ready')\ntry:\n    {second}\nexcept OSError: print('LOCKED')\n"
    holder = Thread(target=lambda: results.append(jail.python(one, timeout="30s")))
    holder.start()
    result = jail.python(two + "say('second-done')", timeout="30s")
    holder.join()
    assert jail.said(result) == "LOCKED"


NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


@pytest.mark.req("004-5")
def test_every_sandbox_has_namespaces_of_its_own(jail: Jail) -> None:
    program = (
        "import os\nfor n in " + repr(NAMESPACES) + ": print(os.readlink('/proc/self/ns/' + n))"
    )
    host = {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
    seen: list[set[str]] = []
    keep = f"{program}\nimport time; open('up', 'w').close()\n"
    keep += "while not os.path.exists('go'): time.sleep(0.005)"

    def first() -> None:
        seen.append(set(jail.said(jail.python(keep, timeout="30s")).split()))

    thread = Thread(target=first)
    thread.start()
    from hostile.jail import appears

    appears(jail.work / "up")
    second = set(jail.said(jail.python(program)).split())
    (jail.work / "go").touch()
    thread.join()
    assert len(second) == len(NAMESPACES)
    assert not second & host
    assert not second & seen[0]


@pytest.mark.req("004-53", "004-5")
def test_a_tool_has_no_capability_no_group_and_no_way_to_more(jail: Jail) -> None:
    fields = "CapInh CapPrm CapEff CapAmb NoNewPrivs Seccomp"
    said = jail.said(jail.sh("cat /proc/self/status"))
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    for name in fields.split()[:4]:
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    uids = set(status["Uid"].split())
    assert len(uids) == 1
    assert uids != {"0"}
    if os.geteuid() == 0:
        assert status["Groups"].strip() == ""
        assert int(uids.pop()) > 1_000_000_000  # an id that nobody on the host has
    else:
        assert int(uids.pop()) == os.geteuid()
        # One id is mapped, the caller's own; root is not among them.
        assert jail.said(jail.sh("cat /proc/self/uid_map")).split() == [str(os.geteuid())] * 2 + [
            "1"
        ]


def test_the_tool_sees_itself_at_the_root_of_its_cgroups(jail: Jail) -> None:
    lines = jail.said(jail.sh("cat /proc/self/cgroup")).splitlines()
    joined = [line for line in lines if any(c in line for c in ("memory", "pids", "cpu", "0::"))]
    assert joined
    assert all(line.endswith(":/") for line in lines if "memory" in line or "pids" in line)
