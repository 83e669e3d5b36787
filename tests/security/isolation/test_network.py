"""Without a network there is none: not the host's loopback, not its sockets, in any spelling."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

CONNECT = """
import socket, sys
family, kind, address = sys.argv[1], sys.argv[2], sys.argv[3]
with socket.socket(getattr(socket, family), getattr(socket, kind)) as s:
    s.settimeout(5)
    if family == 'AF_UNIX':
        s.connect(chr(0) + address[1:] if address.startswith('@') else address)
    else:
        host, port = address.rsplit('|', 1)
        s.connect((host, int(port)))
    s.send(b'knock')
    print(s.recv(5).decode())
"""


@contextlib.contextmanager
def _answering(server: socket.socket) -> Iterator[list[bytes]]:
    """Answer everyone; what came in is the test's to look at."""
    from threading import Thread

    heard: list[bytes] = []
    server.settimeout(0.05)
    stopping = False

    def serve() -> None:
        while not stopping:
            with contextlib.suppress(TimeoutError):
                if server.type == socket.SOCK_DGRAM:
                    data, sender = server.recvfrom(99)
                    heard.append(data)
                    if sender:
                        server.sendto(b"hello", sender)
                else:
                    peer, _ = server.accept()
                    with peer:
                        heard.append(peer.recv(99))
                        peer.send(b"hello")

    thread = Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        stopping = True
        thread.join()


def _inside_and_outside(jail: Jail, server: socket.socket, *arguments: str) -> tuple[str, str]:
    with server, _answering(server) as heard:
        inside = jail.said(jail.python(CONNECT, *arguments))
        assert heard == []
        outside = jail.outside_python(CONNECT, *arguments)
        assert heard == [b"knock"]
    return inside, outside


@pytest.mark.req("000-17", "000-50", "000-51", "004-46")
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
@pytest.mark.parametrize(
    ("family", "bound", "spelt"),
    [
        ("AF_INET", "127.0.0.1", "127.0.0.1"),
        ("AF_INET", "0.0.0.0", "0.0.0.0"),
        ("AF_INET", "127.0.0.1", "localhost"),
        ("AF_INET", "127.0.0.1", "0x7f000001"),
        ("AF_INET6", "::1", "::1"),
        ("AF_INET6", "::", "::ffff:127.0.0.1"),
    ],
)
def test_the_hosts_loopback_is_not_reached(
    jail: Jail, kind: str, family: str, bound: str, spelt: str
) -> None:
    server = socket.socket(getattr(socket, family), getattr(socket, kind))
    server.bind((bound, 0))
    if kind == "SOCK_STREAM":
        server.listen()
    address = f"{spelt}|{server.getsockname()[1]}"
    inside, outside = _inside_and_outside(jail, server, family, kind, address)
    assert (inside, outside) == ("", "hello")


@pytest.mark.req("000-17")
def test_an_address_of_the_host_is_not_reached(jail: Jail) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # nothing is sent: only asks for a route
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.2"  # a host without any: another address of its loopback
    server = socket.create_server((address, 0))
    spelt = f"{address}|{server.getsockname()[1]}"
    inside, outside = _inside_and_outside(jail, server, "AF_INET", "SOCK_STREAM", spelt)
    assert (inside, outside) == ("", "hello")


@pytest.mark.req("000-17")
def test_an_abstract_socket_of_the_host_is_not_reached(jail: Jail) -> None:
    name = f"actum-{os.urandom(8).hex()}"
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0" + name)
    server.listen()
    inside, outside = _inside_and_outside(jail, server, "AF_UNIX", "SOCK_STREAM", f"@{name}")
    assert (inside, outside) == ("", "hello")


@pytest.mark.req("000-17")
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_a_socket_file_in_the_working_directory_is_not_reached(
    jail: Jail, tmp_path: Path, kind: str
) -> None:
    """Such files cross network namespaces: the directory is granted, the socket is not."""
    server = socket.socket(socket.AF_UNIX, getattr(socket, kind))
    os.chdir(jail.work)
    try:
        server.bind("door")
        (jail.work / "door").chmod(0o777)
        if kind != "SOCK_DGRAM":
            server.listen()
            inside, outside = _inside_and_outside(jail, server, "AF_UNIX", kind, "./door")
            assert (inside, outside) == ("", "hello")
            return
        with server, _answering(server) as heard:
            send = "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            send += "s.sendto(b'knock', './door')"
            jail.python(send)
            assert heard == []
            jail.outside_python(send)
        assert heard == [b"knock"]
    finally:
        os.chdir("/")


@pytest.mark.req("000-17")
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW", "SOCK_STREAM", "SOCK_SEQPACKET"])
def test_one_end_of_a_pair_cannot_be_turned_to_a_socket_of_the_host(jail: Jail, kind: str) -> None:
    """A pair needs no address, and yet a datagram end takes any that it is given later."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        os.chdir(jail.work)
        try:
            server.bind("door")
        finally:
            os.chdir("/")
        (jail.work / "door").chmod(0o777)
        server.setblocking(False)
        program = f"import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.{kind})\n"
        program += "try: a.sendto(b'knock', './door')\n"
        program += "except OSError: a.connect('./door'); a.send(b'knock')"
        jail.python(program)
        with pytest.raises(BlockingIOError):
            server.recv(9)
        jail.outside_python(program)
        if kind in ("SOCK_DGRAM", "SOCK_RAW"):
            assert server.recv(9) == b"knock"


@pytest.mark.req("000-17")
def test_no_interface_but_a_private_loopback_and_no_route(jail: Jail) -> None:
    assert jail.said(jail.sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")) == "lo"
    assert jail.said(jail.sh("tail -n +2 /proc/net/route")) == ""
    resolve = (
        "import socket\ntry: print(socket.getaddrinfo('example.com', 80))\nexcept OSError: pass"
    )
    assert jail.said(jail.python(resolve)) == ""


def test_a_tools_own_server_works_on_its_own_loopback(jail: Jail) -> None:
    program = """
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
client.send(b'mine')
print(server.accept()[0].recv(4).decode())
a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(4).decode())
"""
    assert jail.said(jail.python(program)) == "mine\npair"
