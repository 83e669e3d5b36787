"""Allowed names are reached from a container, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from actum.contract.model import RunnerKind
from common.certificates import authority
from engines import Engine
from engines.fixtures import docker, engine, podman

from .outside import EchoServer, Net, _Server, bare, echo_server, http_server, said

pytestmark = pytest.mark.sandbox
__all__ = ["docker", "engine", "podman"]


@dataclass(frozen=True)
class World:
    net: Net
    web: _Server
    echo: EchoServer


@pytest.fixture(scope="module")
def world(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("reach")
    ca_file, context = authority(folder, ["api.test", "two.test"])
    with http_server(context) as web, echo_server() as echo:
        net = Net(
            folder,
            hosts=["api.test", "two.test", "*.wild.test", "echo.test:7777", "11.0.0.2"],
            outbound=("https", "tcp"),
            resolve={
                "api.test:443": web.place,
                "two.test:443": web.place,
                "a.wild.test:443": web.place,
                "echo.test:7777": echo.place,
            },
            ca_file=ca_file,
            toml=f'\n[docker]\nhost = "{engine.socket}"\n',
            kind=RunnerKind.DOCKER,
        )
        yield World(net, web, echo)
        net.close()


RAW = """
import socket
with socket.create_connection(('echo.test', 7777)) as s:
    s.sendall(b'quiet')
    print(s.recv(99).decode())
"""
_BY_NAME = {"enabled": True, "allow": ["api.test", "two.test", "echo.test:7777"]}


def test_allowed_names_are_reached(world: World) -> None:
    script = f'curl -sS https://api.test/x; echo; python3 -c "{RAW}"'
    result = world.net.run(script, **_BY_NAME)
    assert said(result) == ["hello api.test", "QUIET"]
    made = [(one.host, one.port, one.refused) for one in result.egress]
    assert made == [("api.test", 443, ""), ("echo.test", 7777, "")]
    assert all(one.sent and one.received for one in result.egress)


def test_a_name_under_a_wildcard_gets_a_listener_when_it_is_asked_for(world: World) -> None:
    """It is reached inside, and where it leads outside is judged."""
    result = world.net.run("curl -skS https://a.wild.test/x", enabled=True, allow=["*.wild.test"])
    (made,) = result.egress
    assert (made.host, made.refused) == (
        "a.wild.test",
        "internal address 127.0.0.1 (127.0.0.0/8)",
    )


def test_another_name_is_refused_and_on_record(world: World) -> None:
    script = "curl -sS -m 5 https://two.test/; echo $?; curl -sS -m 5 https://api.test/; echo $?"
    result = world.net.run(script, enabled=True, allow=["api.test"])
    assert said(result) == ["6", "hello api.test0"]
    assert [(one.host, one.refused) for one in result.egress] == [
        ("two.test", "name not allowed"),
        ("api.test", ""),
    ]


def test_the_hosts_own_loopback_is_out_of_reach(world: World) -> None:
    script = f'curl -sk -m 5 https://{world.web.place}/; echo " $?"'
    assert bare(script) == [f"hello {world.web.place} 0"]
    assert said(world.net.run(script, **_BY_NAME)) == [" 7"]


def test_an_address_in_place_of_a_name_is_refused_by_name(world: World) -> None:
    with pytest.raises(AssertionError, match="by name only"):
        world.net.run("true", enabled=True, allow=["11.0.0.2"])
