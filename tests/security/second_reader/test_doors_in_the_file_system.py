"""Things in a granted directory that are no files: sockets of the host, leases, locks."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from actum.registry.approval_workflow import block
from hostile.jail import Jail, appears

pytestmark = pytest.mark.sandbox

_SEND = """
import socket, sys
one, other = socket.socketpair(socket.AF_UNIX, {kind})
try:
    one.sendto(b"out", sys.argv[1])
except OSError:
    one.connect(sys.argv[1])
    one.send(b"out")
print("sent")
"""


@pytest.fixture
def host_socket(jail: Jail) -> socket.socket:
    """In a folder that tools see as it is: what a layer shows of a socket leads nowhere."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(jail.told / "s"))
    (jail.told / "s").chmod(0o777)
    listening.setblocking(False)
    return listening


def _name_of_socket(jail: Jail) -> str:
    return os.path.relpath(jail.told / "s", jail.work)  # a whole path may be too long for one


@pytest.mark.req("000-17")
@pytest.mark.parametrize(
    "kind", ["socket.SOCK_DGRAM", "socket.SOCK_RAW", "socket.SOCK_DGRAM | socket.SOCK_CLOEXEC"]
)
def test_half_of_a_datagram_pair_does_not_reach_a_socket_of_the_host(
    jail: Jail, host_socket: socket.socket, kind: str
) -> None:
    """A pair of datagram sockets is connected, but not for good: either end takes an address."""
    with host_socket:
        program = _SEND.format(kind=kind)
        assert jail.outside_python(program, _name_of_socket(jail)) == "sent"
        assert host_socket.recv(16) == b"out"
        assert jail.said(jail.python(program, _name_of_socket(jail))) == ""
        with pytest.raises(BlockingIOError):
            host_socket.recv(16)


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_pairs_that_stay_pairs_work(jail: Jail, kind: str) -> None:
    program = f"""
import socket
one, other = socket.socketpair(socket.AF_UNIX, socket.{kind})
one.send(b"x")
print(other.recv(1))
for end in (one, other):
    try:
        end.connect("{_name_of_socket(jail)}")
    except OSError as error:
        print(error.strerror)
    end.close()
"""
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as listening:
        listening.bind(str(jail.told / "s"))
        (jail.told / "s").chmod(0o777)
        listening.listen()
        said = jail.said(jail.python(program)).splitlines()
    assert said == ["b'x'", *["Transport endpoint is already connected"] * 2]


_LEASE = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
        print("leased")
    except OSError as error:
        print(error.strerror)
"""


def test_no_file_can_be_leased(jail: Jail) -> None:
    """An open of a leased file waits for the holder, so the host would wait for the tool."""
    file = jail.root / "tools.lock"
    assert jail.outside_python(_LEASE, str(file)) == "leased\nleased"
    assert jail.said(jail.python(_LEASE, str(file))) == "\n".join(["Operation not permitted"] * 2)


def test_a_tool_that_locks_the_project_does_not_keep_others_from_blocking_it(
    own_jail: Jail,
) -> None:
    """A lock needs no more than reading; what decisions wait for is not visible inside."""
    program = f"""
import fcntl, os, sys, time
for path in ({str(own_jail.root)!r}, {str(own_jail.root / "tools.lock")!r}):
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
print("held", file=sys.stderr, flush=True)
while not os.path.exists({str(own_jail.told / "done")!r}):
    time.sleep(0.01)
"""
    running = threading.Thread(
        target=own_jail.python,
        args=(program,),
        kwargs={"on_output": own_jail.relay},
        daemon=True,
    )
    running.start()
    appears(own_jail.told / "held")
    assert not _lockable(own_jail.root)
    deciding = threading.Thread(
        target=block,
        args=(own_jail.root, own_jail.runtime.keyring, "shell"),
        kwargs={"by": "user:test", "evidence": "it misbehaves", "date": "2026-11-15"},
        daemon=True,
    )
    deciding.start()
    deciding.join(60)
    decided = not deciding.is_alive()
    (own_jail.told / "done").touch()
    running.join()
    deciding.join()
    assert decided
    assert "TOOL_NOT_ACTIVE" in own_jail.sh("echo started").reason_codes


def _lockable(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
