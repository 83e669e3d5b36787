"""A project whose tools may go outside, and the servers that are outside: all on loopback.

Every name is made up; `[egress.resolve]` says where it is, and a person approves it.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from actum import Result, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.records.audit import Decision
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runners.local import LocalRunner
from actum.sandbox.egress.relay import Relay
from actum.settings import load
from actum.store.keys import Keyring
from common.settings import add_settings
from hostile.jail import POOL

CHILDREN = {"sandbox.processes.max_children": 60}


def toml_table(values: Mapping[str, str]) -> str:
    return "".join(f'"{name}" = "{value}"\n' for name, value in values.items())


class Net:
    """A project with one tool, `net` (a shell), and the hosts its approved scope names."""

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Sequence[str],
        outbound: Sequence[str] = ("http", "https"),
        resolve: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
        filesystem: Sequence[str] = (".",),
        toml: str = "",
        relay: Callable[[Mapping[str, str]], Relay] | None = None,
        environment: Mapping[str, str] | None = None,
        kind: RunnerKind = RunnerKind.LOCAL,
    ) -> None:
        self.root = folder.resolve() / "project"
        create(self.root, kind, by="user:maker", date="2026-11-15")
        self._add_tool(hosts, outbound, filesystem)
        authorities = "" if ca_file is None else f'ca_file = "{ca_file}"\n'
        add_settings(
            self.root,
            f"{toml}\n[egress]\n{authorities}[egress.resolve]\n{toml_table(resolve or {})}",
        )
        self.work = self.root / "work"
        self.work.mkdir(mode=0o755)
        self.settings = load(self.root / ".actum", environment or os.environ)
        runners = None
        if relay is not None:
            runner = LocalRunner(
                resolve=self.settings.resolve,
                authorities=self.settings.file.authorities,
                relay=relay(self.settings.resolve),
                pool=POOL,
            )
            runners = {RunnerKind.LOCAL: runner}
        self.runtime = Runtime(self.settings, runners=runners, pool=POOL)

    def _add_tool(
        self, hosts: Sequence[str], outbound: Sequence[str], filesystem: Sequence[str]
    ) -> None:
        shell = self.root / "tools/shell"
        folder = self.root / "tools/net"
        (folder / "adapters").mkdir(parents=True)
        tool = yaml.safe_load((shell / "tool.yaml").read_text())
        tool |= {"tool_id": "TL-900", "name": "net"}
        tool["scope"] |= {"network": "on", "hosts": list(hosts), "filesystem": list(filesystem)}
        tool["permissions"]["network"]["outbound"] = list(outbound)
        tool["permissions"]["filesystem"] = {"read": list(filesystem), "write": list(filesystem)}
        (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
        (source,) = (shell / "adapters").glob("*.yaml")
        adapter = yaml.safe_load(source.read_text())
        adapter |= {"adapter_id": "ADP-900", "name": "net", "tool_id": "TL-900"}
        (folder / "adapters/net.yaml").write_text(yaml.safe_dump(adapter))
        for name in ("README.md", "CHANGELOG.md"):
            (folder / name).write_text("test\n")
        keyring = Keyring.open(self.root / ".actum")
        approve(self.root, keyring, "net", by="user:maker", evidence="test", date="2026-11-15")

    def ask(self, script: str, **network: Any) -> Result:
        """Once, as it is; `network` are fields of the contract's network section."""
        fields = {f"sandbox.network.{name}": value for name, value in network.items()}
        if not network:
            fields = {"sandbox.network.enabled": True}
        return self.exec(script, fields)

    def exec(self, script: str, fields: Mapping[str, Any], **words: Any) -> Result:
        return self.runtime.exec(
            "net", stdin=script.encode(), cwd=self.work, set={**CHILDREN, **fields}, **words
        )

    def run(self, script: str, **network: Any) -> Result:
        """As `ask`, and whatever needs a decision gets it first."""
        result = self.ask(script, **network)
        if "APPROVAL_REQUIRED" in result.reason_codes:
            self.approve(result)
            result = self.ask(script, **network)
        assert result.result is not None, result.violations
        return result

    def approve(self, result: Result) -> list[str]:
        requests = [violation.value for violation in result.violations]
        for request in requests:
            self.runtime.approvals.decide(
                request, Decision.ALLOW, by="user:boss", why="it is a test"
            )
        return requests

    def close(self) -> None:
        self.runtime.close()


def said(result: Result) -> list[str]:
    assert result.result is not None, result.violations
    return result.result.stdout.split("\n")[:-1]


def bare(script: str, **environment: str) -> list[str]:
    """The same script without a sandbox: the positive control."""
    done = subprocess.run(
        ["/bin/sh"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", **environment},
    )
    return done.stdout.split("\n")[:-1]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append((self.headers["Host"], self.path))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = f"hello {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1_024

    def __init__(self, context: ssl.SSLContext | None, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Handler)
        self.seen: list[tuple[str, str]] = []
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def http_server(context: ssl.SSLContext | None = None) -> Iterator[_Server]:
    with _Server(context) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server: Any = self.server
        server.seen += 1
        with contextlib.suppress(OSError):
            while data := self.request.recv(65_536):
                self.request.sendall(data.upper())
        server.ended += 1


class EchoServer(socketserver.ThreadingTCPServer):
    """Raw TCP: says everything back, louder."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1_024
    seen = 0
    ended = 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def echo_server() -> Iterator[EchoServer]:
    with EchoServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
