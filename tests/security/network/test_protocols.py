"""A protocol class permits its protocol, and no other one on the same port."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .outside import Net, said

pytestmark = pytest.mark.sandbox

BANNER = b"220 ready\r\n"


class _Heard(socketserver.ThreadingTCPServer):
    """Speaks first, keeps what it hears, and answers it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.heard: list[bytes] = []


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server: Any = self.server
        self.request.sendall(BANNER)
        if data := self.request.recv(65_536):
            server.heard.append(data)


@contextmanager
def heard() -> Iterator[_Heard]:
    with _Heard() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def client_hello() -> bytes:
    """The first bytes of a real TLS client."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(inward, outward, server_hostname="api.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outward.read()


HELLO = client_hello()
OPENINGS = {
    "tls": HELLO,
    "http": b"GET /x?y HTTP/1.1\r\nHost: api.test\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "smtp": b"EHLO tool\r\n",
    "redis": b"GET /x\r\n",
    "binary": b"\0\0\0\x08\x04\xd2\x16\x2f",
    "handshake": b"\x16\x03\x01\x00\x10\x02\x00\x00\x0c\x03\x03\x00",  # but no ClientHello
}
PERMITTED = {
    "https": {"tls"},
    "http": {"http", "http2"},
    "http https": {"tls", "http", "http2"},
    "https tcp": set(OPENINGS),
}
#: Connects once for each opening, sends it in two pieces, and prints the answer.
PROGRAM = """
import socket, sys, time
for name, opening in zip(sys.argv[2::2], map(bytes.fromhex, sys.argv[3::2])):
    with socket.create_connection(('api.test', int(sys.argv[1])), 20) as made:
        try:
            made.sendall(opening[:3])
            time.sleep(0.05)
            made.sendall(opening[3:])
            print(name, made.recv(99))
        except OSError as error:
            print(name, type(error).__name__)
"""


def program(port: int, openings: dict[str, bytes]) -> str:
    words = " ".join(f"{name} {opening.hex()}" for name, opening in openings.items())
    return f"cat > p.py <<'END'\n{PROGRAM}\nEND\npython3 p.py {port} {words}"


@pytest.mark.req("004-47")
@pytest.mark.parametrize("port", [443, 22], ids=["of its class", "explicit"])
@pytest.mark.parametrize("classes", PERMITTED)
def test_only_the_protocols_of_its_classes_are_relayed(
    tmp_path: Path, classes: str, port: int
) -> None:
    permitted = PERMITTED[classes]
    with heard() as server:
        place = "{}:{}".format(*server.server_address)
        net = Net(
            tmp_path,
            hosts=[f"api.test:{port}"],
            outbound=classes.split(),
            resolve={f"api.test:{port}": place},
        )
        result = net.run(program(port, OPENINGS), enabled=True, allow=[f"api.test:{port}"])
        net.close()
    answers = dict(line.split(" ", 1) for line in said(result))
    assert {name for name, text in answers.items() if text == repr(BANNER)} == permitted
    refused = set(OPENINGS) - permitted
    assert {answers[name] for name in refused} <= {"ConnectionResetError", "BrokenPipeError"}
    # A server hears nothing of a refused client.
    assert {data[:3] for data in server.heard} == {OPENINGS[name][:3] for name in permitted}
    denied = [one for one in result.egress if one.refused]
    assert len(denied) == len(refused)
    assert all(one.refused.startswith("protocol ") and not one.sent for one in denied)
    assert [each.kind for each in result.denials] == ["network"] * len(refused)
    if refused:
        assert any("protocol ssh refused" in each.target for each in result.denials)


SILENT = """
import socket
with socket.create_connection(('api.test', 443), 20) as made:
    made.settimeout(1)
    try:
        print(made.recv(99))
    except TimeoutError:
        print('nothing')
"""


@pytest.mark.req("004-47")
@pytest.mark.parametrize("classes", ["https", "https tcp"])
def test_a_server_that_speaks_first_is_not_heard_before_the_client(
    tmp_path: Path, classes: str
) -> None:
    with heard() as server:
        resolve = {"api.test:443": "{}:{}".format(*server.server_address)}
        net = Net(tmp_path, hosts=["api.test"], outbound=classes.split(), resolve=resolve)
        result = net.run(f'python3 -c "{SILENT}"')
        net.close()
    assert said(result) == [repr(BANNER) if "tcp" in classes else "nothing"]
