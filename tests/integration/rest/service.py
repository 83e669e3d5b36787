"""A service over HTTPS on loopback, under a real-looking name, and a project that may call it."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from actum import Result, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.records.audit import Decision
from actum.execution.retry_clock import RetryClock
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runners.base import Cancel
from actum.settings import load
from actum.store.keys import Keyring
from actum.value import replace
from common.settings import add_settings

EXAMPLE = Path(__file__).parents[3] / "examples/api/rest"
TOKEN = "canary-token-4711-with-length"
NAMES = ("api.example.com", "other.example.com", "login.example.com")

#: (status, headers, body) of one response.
Reply = tuple[int, Mapping[str, str], bytes]


class Request:
    def __init__(self, handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        self.method, self.path = handler.command, handler.path
        self.host = handler.headers["Host"]
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = body


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        service: Any = self.server
        length = int(self.headers.get("Content-Length", 0))
        request = Request(self, self.rfile.read(length))
        service.seen.append(request)
        status, headers, body = service.answer(request)
        if status == 0:
            self.close_connection = True
            self.connection.shutdown(2)  # not a word
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _any  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


class Service(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Request] = []
        self.answer: Callable[[Request], Reply] = resources
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def handle_error(self, *_: Any) -> None:
        pass


def said(value: Any, status: int = 200, **headers: str) -> Reply:
    fields = {name.replace("_", "-"): text for name, text in headers.items()}
    return status, {"Content-Type": "application/json", **fields}, json.dumps(value).encode()


def resources(request: Request) -> Reply:
    """What the example service would say."""
    path = urlsplit(request.path).path
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        return said({"error": "who are you?"}, 401)
    if request.method == "POST":
        return said({"data": {"id": 8, **json.loads(request.body)}}, 201)
    if path == "/v1/resources":
        return said({"data": [{"id": 7}], "path": request.path})
    return said({"data": {"id": path.rpartition("/")[2]}, "page": 1})


def in_turn(*replies: Reply) -> Callable[[Request], Reply]:
    left = list(replies)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None) -> Iterator[Service]:
    with Service(context) as service:
        thread = threading.Thread(target=service.serve_forever, daemon=True)
        thread.start()
        yield service
        service.shutdown()
        thread.join()


class Waits:
    """Time that passes only during waits, so that waits are exact."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.cancelled = False

    def pace(self) -> RetryClock:
        return RetryClock(lambda: sum(self.waited), self._wait)

    def _wait(self, seconds: float, _cancel: Cancel | None) -> bool:
        self.waited.append(seconds)
        return not self.cancelled


class Project:
    """A project with the example tool, changed as a test asks; every call approved for loopback."""

    def __init__(
        self,
        folder: Path,
        service: Service,
        ca_file: Path,
        *,
        change: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
        trusted: bool = True,
        example: Path = EXAMPLE,
    ) -> None:
        self.root = folder / "project"
        create(self.root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
        tool_folder = self.root / "tools" / example.name
        shutil.copytree(example, tool_folder)
        if change is not None:
            self._change(tool_folder, change)
        keyring = Keyring.open(self.root / ".actum")
        approve(
            self.root, keyring, example.name, by="user:maker", evidence="test", date="2026-11-15"
        )
        place = f"127.0.0.1:{service.server_port}"
        add_settings(
            self.root,
            "\n[egress]\n"
            + (f'ca_file = "{ca_file}"\n' if trusted else "")
            + "[egress.resolve]\n"
            + "".join(f'"{n}:443" = "{place}"\n' for n in NAMES)
            + '[secrets]\nREST_TOKEN = { env = "TEST_REST_TOKEN" }\n',
        )
        self.tool = example.name
        self.waits = Waits()
        settings = load(self.root / ".actum", os.environ)
        self.runtime = Runtime(settings)
        self.runtime.services = replace(self.runtime.services, retry_clock=self.waits.pace())

    @staticmethod
    def _change(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
        tool_file, adapter_file = folder / "tool.yaml", folder / "adapters/rest-api-client.yaml"
        tool, adapter = (yaml.safe_load(file.read_text()) for file in (tool_file, adapter_file))
        tool["scope"]["network"] = "on" if tool["scope"]["network"] else "off"
        change(tool, adapter)
        tool_file.write_text(yaml.safe_dump(tool))
        adapter_file.write_text(yaml.safe_dump(adapter))

    def ask(self, operation: str, **words: Any) -> Result:
        """Once, as it is."""
        words.setdefault("adapter_id", "ADP-002")
        parameters = words.pop("parameters", {})
        return self.runtime.exec(f"{self.tool}:{operation}", parameters=parameters, **words)

    def call(self, operation: str, **words: Any) -> Result:
        """As `ask`; that the name leads to loopback is approved by a person first."""
        result = self.ask(operation, **words)
        if "APPROVAL_REQUIRED" in result.reason_codes:
            for violation in result.violations:
                self.runtime.approvals.decide(
                    violation.value, Decision.ALLOW, by="user:boss", why="it is a test"
                )
            result = self.ask(operation, **words)
        return result

    def close(self) -> None:
        self.runtime.close()
