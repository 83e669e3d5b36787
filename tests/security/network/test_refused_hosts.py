"""A run in which the tool was refused the network says so, also if the tool exits with 0: in the
result, in the JSON document and in the summary line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_servers.project import adapter, tool, write

from actum import Outcome, Result, Runtime
from actum.capture.model import ADDRESS_LITERAL, NO_NETWORK
from actum.contract.model import RunnerKind
from actum.doors.cli.reply import summary_lines
from actum.execution.result import NetworkRefusal
from actum.project import create
from actum.settings import load

from .outside import Net, free_port, http_server, said

pytestmark = pytest.mark.sandbox

TWICE = "curl -sS http://evil.test/; curl -sS http://evil.test/; exit 0"
LOOK_UP = """
import socket
try:
    socket.getaddrinfo("evil.test", 80, socket.AF_INET)
except OSError:
    pass
"""
LITERAL = LOOK_UP.replace(
    'getaddrinfo("evil.test", 80, socket.AF_INET)', 'create_connection(("192.0.2.7", 80))'
)


def refused(
    host: str, port: int = 0, count: int = 1, why: str = "name not allowed"
) -> NetworkRefusal:
    return NetworkRefusal(host=host, port=port, count=count, why=why)


def summary(result: Result) -> str:
    return next(iter(summary_lines(result)))


def actum(root: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actum.doors.cli.main", *words],
        capture_output=True,
        text=True,
        cwd=root,
        input=stdin,
    )


def test_a_refused_name_is_in_the_result_the_document_and_the_summary(tmp_path: Path) -> None:
    with http_server() as web:
        net = Net(
            tmp_path, hosts=["api.test"], outbound=("http",), resolve={"api.test:80": web.place}
        )
        fine = net.run("curl -sS http://api.test/; echo")
        assert said(fine) == ["hello api.test"]
        assert fine.network_refused == ()
        assert "network refused" not in summary(fine)
        result = net.run(f"curl -sS http://api.test/; echo; {TWICE}")
        assert result.outcome is Outcome.SUCCEEDED
        assert said(result) == ["hello api.test"]
        assert result.network_refused == (refused("evil.test", count=2),)
        assert "SUCCEEDED" in summary(result)
        assert "network refused: evil.test (2×)" in summary(result)
        assert result.document()["network_refused"] == [
            {"host": "evil.test", "port": 0, "count": 2, "why": "name not allowed"}
        ]
        net.close()


def test_a_refused_connection_names_its_port_and_a_silent_server_is_no_refusal(
    tmp_path: Path,
) -> None:
    down = f"127.0.0.1:{free_port()}"
    with http_server() as web:
        resolve = {"down.test:80": down, "x.w.test:80": web.place}
        net = Net(tmp_path, hosts=["down.test", "*.w.test"], outbound=("http",), resolve=resolve)
        twice = "curl -sS http://x.w.test/; curl -sS http://x.w.test/"
        script = f"{twice}; curl -sS http://down.test/; exit 0"
        result = net.run(script)
        (found,) = result.network_refused
        assert (found.host, found.port, found.count) == ("x.w.test", 80, 2)
        assert "internal address 127.0.0.1" in found.why
        assert "network refused: x.w.test:80 (2×)" in summary(result)
        assert "down.test" not in summary(result)
        assert [one.denied for one in result.egress if one.host == "down.test"] == [False]
        net.close()


def test_the_command_line_names_the_refused_host(tmp_path: Path) -> None:
    net = Net(tmp_path, hosts=["quiet.test"], outbound=("http",))
    net.close()
    words = ("exec", "net", "--allow-host", "quiet.test", "--stdin", "-")
    done = actum(net.work, *words, stdin=TWICE)
    assert done.returncode == 0
    assert "actum: SUCCEEDED · exit code 0" in done.stderr
    assert "network refused: evil.test (2×)" in done.stderr
    document = json.loads(actum(net.work, "--json", *words, stdin=TWICE).stdout)
    assert document["network_refused"] == [
        {"host": "evil.test", "port": 0, "count": 2, "why": "name not allowed"}
    ]
    quiet = actum(net.work, *words, stdin="echo nothing tried")
    assert "SUCCEEDED" in quiet.stderr
    assert "network refused" not in quiet.stderr


def test_more_hosts_than_a_line_holds_are_counted(tmp_path: Path) -> None:
    net = Net(tmp_path, hosts=["quiet.test"], outbound=("http",))
    names = " ".join(f"h{number}.test" for number in range(6))
    result = net.run(f"for each in {names}; do getent ahostsv4 $each; done; exit 0")
    assert [one.host for one in result.network_refused] == names.split()
    assert "network refused: h0.test, h1.test, h2.test, 3 more ·" in summary(result)
    net.close()


def project(tmp_path: Path) -> Runtime:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    return Runtime(load(root / ".actum", {"LOGNAME": "test"}))


OWN_SERVER = """
import socket, threading
with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    accepted.sendall(b"hello"); accepted.close()
    print(client.recv(5).decode())
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(LOOK_UP, id="a name"),
        pytest.param(
            LITERAL,
            id="an address",
        ),
    ],
)
def test_a_tool_without_network_that_tries_it_is_reported(tmp_path: Path, program: str) -> None:
    with project(tmp_path) as rt:
        root = rt.settings.root
        for result in (rt.python(program), rt.exec("python", stdin=program, cwd=root)):
            assert result.outcome is Outcome.SUCCEEDED, result
            (found,) = result.network_refused
            assert (found.host, found.why) == ("", NO_NETWORK)
            assert found.count >= 1
            assert "network refused: the tool has no network" in summary(result)
        control = rt.exec("python", stdin=OWN_SERVER, cwd=root)
        assert control.result is not None and control.result.stdout == "hello\n"
        assert control.network_refused == ()
    done = actum(root, "exec", "python", "--stdin", "-", stdin=program)
    assert done.returncode == 0
    assert "network refused: the tool has no network" in done.stderr


def test_an_address_where_names_can_be_reached_is_reported(tmp_path: Path) -> None:
    net = Net(tmp_path, hosts=["quiet.test"], outbound=("http",))
    result = net.run("curl -sS -m 5 http://192.0.2.7/; exit 0")
    assert result.network_refused == (refused("", why=ADDRESS_LITERAL),)
    assert "network refused: addresses without a route ·" in summary(result)
    net.close()


@pytest.mark.parametrize("stateful", [True, False])
def test_a_call_of_an_mcp_server_says_what_the_server_was_refused(
    tmp_path: Path, stateful: bool
) -> None:
    """Of a server that is kept, each call has its own."""
    with project(tmp_path) as rt:
        write(rt.settings.root, *with_network(stateful))
        work = rt.settings.root / "work"
        work.mkdir()

        def ask(how: str) -> Result:
            return rt.exec("small:misbehave", parameters={"text": how}, cwd=work)

        for host in ("evil.test", "evil.test", "other.test"):
            result = ask(f"reach {host}")
            assert result.outcome is Outcome.SUCCEEDED, result
            assert result.network_refused == (refused(host),)
            assert f"network refused: {host} ·" in summary(result)
            (denial,) = result.denials
            assert denial.target == f"{host}:0 (name not allowed)"
        assert ask("reach quiet.test").network_refused == ()


def with_network(stateful: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    command = ["python3", "-I", "-S", "{tool}/server.py", "well"]
    described = tool(servers={"small-server": {"command": command, "stateful": stateful}})
    described["scope"] |= {"network": "on", "hosts": ["quiet.test"]}
    described["permissions"] |= {"network": {"outbound": ["http"]}}
    network = {"enabled": True, "allow": ["quiet.test"]}
    return described, adapter(sandbox_override={"timeout_ms": 30_000, "network": network})
