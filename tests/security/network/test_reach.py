"""Allowed names are reached by programs that know nothing of us; nothing else is."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.certificates import authority

from .outside import EchoServer, Net, _Server, bare, echo_server, http_server, said

pytestmark = pytest.mark.sandbox


@dataclass(frozen=True)
class World:
    net: Net
    web: _Server
    echo: EchoServer
    ca_file: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("reach")
    ca_file, context = authority(folder, ["api.test", "two.test"])
    with http_server(context) as web, echo_server() as echo:
        net = Net(
            folder,
            hosts=["api.test", "two.test", "echo.test:7777"],
            outbound=("https", "tcp"),
            resolve={
                "api.test:443": web.place,
                "two.test:443": web.place,
                "echo.test:7777": echo.place,
            },
            ca_file=ca_file,
        )
        yield World(net, web, echo, ca_file)
        net.close()


URLLIB = "import urllib.request as u; print(u.urlopen('https://api.test/x').read().decode())"
FETCH = "fetch('https://api.test/x').then(r => r.text()).then(console.log)"
RAW = """
import socket
with socket.create_connection(('echo.test', 7777)) as s:
    s.sendall(b'quiet')
    print(s.recv(99).decode())
"""


@pytest.mark.req("000-18", "004-47")
def test_curl_urllib_node_and_a_raw_socket_reach_allowed_names(world: World) -> None:
    script = f"""
env | grep -i proxy
curl -sS https://api.test/x; echo
python3 -c "{URLLIB}"
node -e "{FETCH}"
python3 -c "{RAW}"
"""
    result = world.net.run(script)
    assert said(result) == ["hello api.test"] * 3 + ["QUIET"]
    made = [(one.host, one.port, one.refused) for one in result.egress]
    assert made == [("api.test", 443, "")] * 3 + [("echo.test", 7777, "")]
    assert all(one.sent and one.received for one in result.egress)


@pytest.mark.req("000-18")
def test_two_names_on_one_port_are_told_apart(world: World) -> None:
    world.web.seen.clear()
    result = world.net.run("curl -sS https://two.test/a https://api.test/b")
    assert [host for host, _ in world.web.seen] == ["two.test", "api.test"]
    assert [one.host for one in result.egress] == ["two.test", "api.test"]


@pytest.mark.req("000-18")
def test_of_two_allowed_names_only_the_one_that_was_asked_for_is_reached(world: World) -> None:
    script = "curl -sS -m 5 https://two.test/; echo $?; curl -sS -m 5 https://api.test/; echo $?"
    result = world.net.run(script, enabled=True, allow=["api.test"])
    assert said(result) == ["6", "hello api.test0"]
    assert [(one.host, one.refused) for one in result.egress] == [
        ("two.test", "name not allowed"),
        ("api.test", ""),
    ]


@pytest.mark.req("000-18", "004-47")
@pytest.mark.parametrize(
    "place", ["evil.test:443", "api.test:80", "api.test:7777", "echo.test:443", "api.test.:22"]
)
def test_another_name_or_port_is_refused(world: World, place: str) -> None:
    host, _, port = place.rpartition(":")
    program = f"""
import socket
try:
    print(socket.create_connection(('{host}', {port}), 5))
except OSError as error:
    print('refused')
with socket.create_connection(('echo.test', 7777)) as s:
    s.sendall(b'but this works')
    print(s.recv(99).decode())
"""
    result = world.net.run(f'python3 -c "{program}"')
    assert said(result) == ["refused", "BUT THIS WORKS"]


@pytest.mark.req("000-17", "000-18", "004-48")
def test_the_hosts_own_loopback_is_out_of_reach(world: World) -> None:
    script = f'curl -sk -m 5 https://{world.web.place}/; echo " $?"'
    assert bare(script) == [f"hello {world.web.place} 0"]
    assert said(world.net.run(script)) == [" 7"]


@pytest.mark.req("000-18")
@pytest.mark.parametrize(
    "spelling",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "１２７.0.0.1", "127。0。0。1", "localhost",
    ],
)  # fmt: skip
def test_no_spelling_of_an_address_leads_to_the_host(world: World, spelling: str) -> None:
    port = world.web.server_port
    script = f"curl -sk -m 5 -o /dev/null 'https://{spelling}:{port}/'; echo $?"
    outside = bare(script, LANG="C.UTF-8")
    inside = said(world.net.run(script))
    if spelling.isascii() or outside == ["0"]:  # curl may be built without IDN
        assert outside == ["0"]
    assert inside[0] in ("3", "6", "7")


@pytest.mark.req("000-17", "000-50", "000-51", "004-46")
def test_a_contract_that_says_nothing_about_the_network_has_none(world: World) -> None:
    program = f"""
import socket
def attempt(what):
    try:
        what()
        print('reached')
    except OSError as error:
        print(type(error).__name__)
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(('192.0.2.1', 53))
    s.send(b'x')
attempt(lambda: socket.getaddrinfo('api.test', 443))
attempt(lambda: socket.create_connection(('127.0.0.1', {world.web.server_port}), 5))
attempt(lambda: socket.create_connection(('198.18.1.0', 443), 5))
attempt(udp)
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
print([name for _, name in socket.if_nameindex()])
"""
    result = world.net.exec(f'python3 -c "{program}"', {})
    reached, *rest = said(result)
    assert reached == "gaierror"
    assert rest[:-1] == [
        "ConnectionRefusedError",
        "OSError",
        "OSError",
        "PermissionError",
        "PermissionError",
    ]
    assert rest[-1] == "['lo']"
    assert result.egress == ()


UNIX = """
import socket, sys
for place in ('\\0' + sys.argv[1], sys.argv[2]):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(place)
            s.sendall(b'x')
        print('reached')
    except OSError as error:
        print('refused')
"""


@pytest.mark.req("000-17")
def test_unix_sockets_of_the_host_are_out_of_reach_by_name_and_by_path(world: World) -> None:
    name = f"actum-{uuid.uuid4()}"
    path = world.net.work / "s"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0{name}")
        named.bind(str(path))
        path.chmod(0o777)
        for each in (abstract, named):
            each.listen()
        script = f"cat > unix.py <<'END'\n{UNIX}\nEND\npython3 unix.py {name} {path}"
        control = subprocess.run(
            [sys.executable, "-", name, str(path)], input=UNIX, capture_output=True, text=True
        )
        assert control.stdout.split() == ["reached", "reached"]
        assert said(world.net.exec(script, {})) == ["refused", "refused"]
        assert said(world.net.run(script)) == ["refused", "refused"]
    path.unlink()


@pytest.mark.req("000-18")
def test_an_enabled_network_with_an_empty_list_reaches_nothing(world: World) -> None:
    script = "curl -sS -m 5 https://api.test/; echo $?"
    result = world.net.ask(script, enabled=True, allow=[])
    assert said(result) == ["6"]
    assert (result.egress, world.net.run(script).egress != ()) == ((), True)


@pytest.mark.req("004-47")
def test_udp_quic_raw_sockets_and_ipv6_find_no_way(world: World) -> None:
    program = """
import socket
def attempt(family, kind, place, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(3)
            s.connect(place)
            s.send(b'x' * 1200)
            s.recv(1)
        print('reached')
    except OSError as error:
        print(type(error).__name__)
V4, V6, UDP, TCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
address = socket.gethostbyname('api.test')
attempt(V4, UDP, (address, 443))
attempt(V4, UDP, ('8.8.8.8', 53))
attempt(V4, socket.SOCK_RAW, (address, 0), socket.IPPROTO_ICMP)
attempt(V6, TCP, ('2001:4860:4860::8888', 443))
attempt(V6, TCP, ('::1', 443))
attempt(V4, TCP, ('8.8.8.8', 443))
"""
    result = world.net.run(f'python3 -c "{program}"')
    assert said(result) == [
        "ConnectionRefusedError",
        "OSError",
        "PermissionError",
        "OSError",
        "ConnectionRefusedError",
        "OSError",
    ]
    assert result.egress == ()


def test_a_server_of_the_tools_own_is_reached_by_itself_alone(world: World) -> None:
    script = """
python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &
curl -sS -o /dev/null -w '%{http_code}' --retry 20 --retry-connrefused --retry-delay 1 \
    http://127.0.0.1:8000/
"""
    result = world.net.exec(script, {"sandbox.timeout_ms": 60_000})
    assert result.result is not None
    assert result.result.stdout == "200"
