"""Requests to an engine, for tests: the Engine API over its unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from pathlib import Path
from typing import Any

#: Docker 20.10 and Podman 4.3 speak this version.
API = "v1.41"


class EngineError(Exception):
    """The engine answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, wait_s: float) -> None:
        super().__init__("engine", timeout=wait_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def call(
    path: Path,
    method: str,
    what: str,
    body: object = None,
    *,
    wait_s: float = 60,
    **query: object,
) -> Any:
    """The answer as JSON if it is JSON, else as bytes. `body`: bytes, or a value for JSON."""
    connection = _Connection(path, wait_s)
    raw = isinstance(body, bytes)
    content = body if raw or body is None else json.dumps(body).encode()
    words = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in query.items()
    }
    target = f"/{API}{what}" + (f"?{urllib.parse.urlencode(words)}" if words else "")
    kind = "application/x-tar" if raw else "application/json"
    try:
        headers = {} if content is None else {"Content-Type": kind}
        connection.request(method, target, content, headers)
        with connection.getresponse() as answer:
            text = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise EngineError(answer.status, text.decode("utf-8", "replace").strip())
    if answer.headers.get_content_type() == "application/json":
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:  # a stream of documents, one per line
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    return text


def answers(path: Path, wait_s: float = 2) -> bool:
    """Whether an engine listens there."""
    try:
        call(path, "GET", "/_ping", wait_s=wait_s)
    except (OSError, EngineError, http.client.HTTPException):
        return False
    return True
