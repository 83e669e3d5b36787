"""Two sandboxes at once are alone, each of them."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from actum import Result
from hostile.jail import Jail, appears

pytestmark = pytest.mark.sandbox

#: The first does something and waits; the second looks for it. That they are ready they say on
#: stderr; `Jail.relay` makes a file of it, which both can see.
WAIT = """
import os, sys, time
def say(name): print(name, file=sys.stderr, flush=True)
def await_(name):
    until = time.monotonic() + 20
    while not os.path.exists(f'{sys.argv[2]}/{name}'):
        if time.monotonic() > until: sys.exit(f'{name} never came')
        time.sleep(0.005)
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
        results[name] = jail.python(
            program, name, str(jail.told), timeout="30s", on_output=jail.relay
        )

    one = f"{WAIT}\n{first}\nsay('first-ready'); await_('second-done')"
    two = f"{WAIT}\nimport atexit; atexit.register(say, 'second-done')\nawait_('first-ready')\n"
    two += f"print('waited')\n{second}\nprint('looked')"
    threads = [Thread(target=run, args=("FIRST", one)), Thread(target=run, args=("SECOND", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = jail.said(results["SECOND"])
    assert said.startswith("waited")
    assert "MET" not in said
    if place != "a loopback port":  # there the refusal is an exception
        assert said.endswith("looked")
    assert results["FIRST"].ok


def _second_locks(jail: Jail, file: Path) -> str:
    """What the second of two sandboxes sees of a lock that the first one holds."""
    lock = f"import fcntl; f = open({str(file)!r}); fcntl.flock(f, fcntl.LOCK_EX"
    one = f"{WAIT}\n{lock})\nsay('first-ready'); await_('second-done')"
    two = f"{WAIT}\nawait_('first-ready')\ntry:\n    {lock} | fcntl.LOCK_NB); print('FREE')\n"
    two += "except BlockingIOError: print('LOCKED')\nsay('second-done')"
    results: list[Result] = []

    def run(program: str) -> Result:
        return jail.python(program, "", str(jail.told), timeout="30s", on_output=jail.relay)

    holder = Thread(target=lambda: results.append(run(one)))
    holder.start()
    second = run(two)
    holder.join()
    assert results[0].ok
    return jail.said(second)


def test_a_lock_is_seen_where_both_were_given_the_file(jail: Jail) -> None:
    """The positive control of the one above, through a file that both can read."""
    file = jail.root / "lock-of-both"
    file.touch()
    assert _second_locks(jail, file) == "LOCKED"


@pytest.mark.parametrize(("transactions", "seen"), [(True, "FREE"), (False, "LOCKED")])
def test_a_lock_in_a_writable_folder_is_seen_only_where_tools_write_directly(
    tmp_path: Path, probe: Path, transactions: bool, seen: str
) -> None:
    """In a transaction each has layers of its own (docs/changes.md says so)."""
    jail = Jail(tmp_path, probe, transactions=transactions)
    (jail.work / "l").touch()
    found = _second_locks(jail, jail.work / "l")
    jail.close()
    assert found == seen


NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


@pytest.mark.req("004-5", "004-24")
def test_every_sandbox_has_namespaces_of_its_own(jail: Jail) -> None:
    program = (
        "import os\nfor n in " + repr(NAMESPACES) + ": print(os.readlink('/proc/self/ns/' + n))"
    )
    host = {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
    seen: list[set[str]] = []
    keep = f"{program}\nimport sys, time; print('up', file=sys.stderr, flush=True)\n"
    keep += f"while not os.path.exists({str(jail.told / 'go')!r}): time.sleep(0.005)"

    def first() -> None:
        kept = jail.python(keep, timeout="30s", on_output=jail.relay)
        seen.append(set(jail.said(kept).split()))

    thread = Thread(target=first)
    thread.start()
    appears(jail.told / "up")
    second = set(jail.said(jail.python(program)).split())
    (jail.told / "go").touch()
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
