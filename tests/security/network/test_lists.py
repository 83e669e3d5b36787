"""Allow and deny lists, wildcards and levels, as a tool feels them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .outside import Net, _Server, http_server, said

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def web() -> Iterator[_Server]:
    with http_server() as server:
        yield server


@pytest.fixture
def make(tmp_path: Path, web: _Server) -> Iterator[Any]:
    made: list[Net] = []

    def make(*hosts: str, names: tuple[str, ...] = (), **more: Any) -> Net:
        resolve = {f"{name}:80": web.place for name in names}
        made.append(Net(tmp_path, hosts=hosts, outbound=("http",), resolve=resolve, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fetch(*names: str) -> str:
    return "".join(f"curl -sS -m 5 http://{name}/ && echo || echo no\n" for name in names)


@pytest.mark.req("000-19")
def test_deny_wins_over_allow(make: Any) -> None:
    net = make("a.test", "b.test", "*.w.test", names=("a.test", "b.test", "x.w.test", "y.w.test"))
    allow = ["a.test", "b.test", "*.w.test", "x.w.test", "y.w.test"]
    script = fetch("a.test", "b.test", "x.w.test", "y.w.test")
    everything = net.run(script, enabled=True, allow=allow)
    assert said(everything) == [f"hello {name}" for name in ("a.test", "b.test", "x.w.test")] + [
        "hello y.w.test"
    ]
    less = net.run(script, enabled=True, allow=allow, deny=["b.test", "y.w.test"])
    assert said(less) == ["hello a.test", "no", "hello x.w.test", "no"]
    assert [(one.host, one.refused) for one in less.egress if one.refused] == [
        ("b.test", "name not allowed"),
        ("y.w.test", "name not allowed"),
    ]


@pytest.mark.req("000-19")
def test_a_denied_port_or_address_is_denied_however_it_is_reached(make: Any, web: _Server) -> None:
    net = make("a.test", "b.test", names=("a.test", "b.test"))
    script = fetch("a.test", "b.test")
    port = net.run(script, enabled=True, deny=["b.test:80"])
    assert said(port) == ["hello a.test", "no"]
    address = net.run(script, enabled=True, deny=["127.0.0.1"])
    assert said(address) == ["no", "no"]
    assert {one.refused for one in address.egress} == {"address 127.0.0.1 denied"}
    # With the port on which the service listens, behind [egress.resolve].
    there = web.place.rpartition(":")[2]
    one_port = net.run(script, enabled=True, deny=[f"127.0.0.1:{there}"])
    assert said(one_port) == ["no", "no"]
    assert {one.refused for one in one_port.egress} == {"address 127.0.0.1 denied"}
    other_port = net.run(script, enabled=True, deny=["127.0.0.1:9"])
    assert said(other_port) == ["hello a.test", "hello b.test"]


@pytest.mark.req("000-18")
def test_a_wildcard_stands_for_every_name_below_its_suffix_and_for_nothing_internal(
    make: Any,
) -> None:
    net = make("*.w.test", names=("x.w.test", "deep.y.w.test", "w.test"))
    allow = ["*.w.test", "x.w.test"]
    script = fetch("x.w.test", "deep.y.w.test", "w.test", "evilw.test")
    result = net.run(script, enabled=True, allow=allow)
    assert said(result) == ["hello x.w.test", "no", "no", "no"]
    refused = {one.host: one.refused for one in result.egress if one.refused}
    assert refused.pop("deep.y.w.test").startswith("internal address 127.0.0.1")
    assert refused == {"w.test": "name not allowed", "evilw.test": "name not allowed"}


@pytest.mark.req("000-52")
def test_level_registry_reaches_the_registries_of_actum_toml_only(make: Any) -> None:
    net = make(
        "packages.test",
        "api.test",
        names=("packages.test", "api.test"),
        toml='[network]\nregistries = ["packages.test"]\n',
    )
    result = net.run(fetch("packages.test", "api.test"), level="registry")
    assert said(result) == ["hello packages.test", "no"]


@pytest.mark.req("000-52")
def test_level_registry_reaches_what_the_package_clients_are_set_up_for(
    make: Any, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".npmrc").write_text("@ours:registry=http://npm.test/x/\nregistry = file:///x\n")
    environment = {"HOME": str(home), "PIP_INDEX_URL": "http://pip.test/simple", "LOGNAME": "me"}
    net = make("*", names=("npm.test", "pip.test", "api.test"), environment=environment)
    assert {"npm.test", "pip.test"} <= set(net.settings.registries(()).hosts)
    result = net.run(fetch("npm.test", "pip.test", "api.test"), level="registry")
    assert said(result) == ["hello npm.test", "hello pip.test", "no"]


@pytest.mark.req("000-53")
def test_level_api_reaches_the_approved_hosts_only(make: Any) -> None:
    net = make("api.test", names=("api.test", "packages.test"))
    result = net.run(fetch("api.test", "packages.test"), level="api")
    assert said(result) == ["hello api.test", "no"]


@pytest.mark.req("000-53")
def test_level_api_reaches_the_apis_of_actum_toml_and_no_more_of_the_tools_scope(make: Any) -> None:
    hosts = ("api.test", "packages.test")
    net = make(*hosts, names=hosts, toml='[network]\napis = ["api.test"]\n')
    assert said(net.run(fetch(*hosts), level="api")) == ["hello api.test", "no"]
    allowed = net.run(fetch(*hosts), enabled=True, allow=list(hosts))
    assert said(allowed) == ["hello api.test", "hello packages.test"]


@pytest.mark.req("000-50")
def test_level_offline_reaches_nothing_that_the_tool_may_otherwise_reach(make: Any) -> None:
    net = make("api.test", names=("api.test",))
    assert said(net.run(fetch("api.test"), enabled=True)) == ["hello api.test"]
    assert said(net.run(fetch("api.test"), level="offline")) == ["no"]


@pytest.mark.req("004-47")
def test_a_tool_whose_classes_do_not_connect_reaches_nothing(tmp_path: Path, web: _Server) -> None:
    net = Net(
        tmp_path, hosts=["api.test:80"], outbound=("dns",), resolve={"api.test:80": web.place}
    )
    assert said(net.run(fetch("api.test"))) == ["no"]
    net.close()


def test_a_tool_that_listens_on_an_allowed_port_ends_as_usual(make: Any) -> None:
    """Its own socket stands where a door for a wildcard would be opened."""
    net = make("*.w.test:8080", names=("x.w.test",))
    program = """
import socket
s = socket.create_server(('0.0.0.0', 8080))
try:
    print(socket.getaddrinfo('fresh.w.test', 8080))
except OSError:
    print('no such name')
"""
    result = net.run(f'python3 -c "{program}"', enabled=True, allow=["*.w.test:8080"])
    assert said(result) == ["no such name"]
    assert [(one.host, one.refused) for one in result.egress] == [
        ("fresh.w.test", "its ports are taken inside the sandbox")
    ]


def test_a_listed_literal_is_reached_once_approved_and_no_other_spelling_is_needed(
    tmp_path: Path, web: _Server
) -> None:
    port = web.server_port
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        other = six.getsockname()[1]
        net = Net(tmp_path, hosts=[f"127.0.0.1:{port}", f"[::1]:{other}"])
        program = f"import socket; socket.create_connection(('::1', {other})); print('connected')"
        script = fetch(f"127.0.0.1:{port}") + f'python3 -c "{program}"'
        assert net.ask(script).reason_codes == ("APPROVAL_REQUIRED",)
        result = net.run(script)
        assert said(result) == [f"hello 127.0.0.1:{port}", "connected"]
        assert said(net.run(fetch(f"127.0.0.1:{port}"), enabled=False)) == ["no"]
        net.close()
