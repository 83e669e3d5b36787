"""An engine that lies: a proxy that changes requests to a real engine, and its answers.

The tested runner gets the proxy's socket. Everything that a lie does not change passes as it is, so
real containers are made. `Lie` does nothing; each subclass overrides what it lies about.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

from engines.engine import Engine, EngineError

_BODY_WAIT_S = 120


class Request:
    """One request of the tested runner."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body

    @property
    def step(self) -> str:
        """The request without its version, ids and query: `POST /containers/*/start`."""
        path = re.sub(r"^/v[\d.]+(?=/)", "", self.target.partition("?")[0])
        parts = path.strip("/").split("/")
        if parts[0] == "containers" and len(parts) > 1 and parts[1:] not in (["create"], ["json"]):
            parts[1] = "*"
        elif parts[0] == "images" and len(parts) > 2:
            parts[1:-1] = ["*"]
        return f"{self.method} /{'/'.join(parts)}"


class Answer:
    """What goes back. `raw` replaces the whole answer, status line included."""

    def __init__(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.status, self.body, self.kind = status, body, kind
        self.raw: bytes | None = None

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @document.setter
    def document(self, value: object) -> None:
        self.body = json.dumps(value).encode()


class Lie:
    """Passes everything. `armed` is for lies that begin in the middle of a run."""

    armed = True

    def request(self, request: Request, proxy: Proxy) -> None:
        """Change `request` before the engine gets it. `ConnectionError`: no answer at all."""

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        """Change `answer` before the runner gets it."""


class Drops(Lie):
    """Removes or replaces options of a container; with `hidden` the engine claims to have them."""

    def __init__(self, *, hidden: bool, host: dict[str, Any], top: dict[str, Any] | None = None):
        self._hidden, self._host, self._top = hidden, host, top or {}
        self._asked: dict[str, Any] = {}

    def request(self, request: Request, proxy: Proxy) -> None:
        if request.step == "POST /containers/create":
            document = json.loads(request.body)
            self._asked = copy.deepcopy(document)
            _replace(document["HostConfig"], self._host)
            _replace(document, self._top)
            request.body = json.dumps(document).encode()

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if self._hidden and request.step == "GET /containers/*/json" and answer.status == 200:
            document = answer.document
            for key in self._host:
                document["HostConfig"][key] = self._asked["HostConfig"].get(key)
            for key in self._top:
                document.setdefault("Config", {})[key] = self._asked.get(key)
            answer.document = document


def _replace(document: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, new in changes.items():
        if callable(new):
            document[key] = new(document.get(key))
        elif new is None:
            document.pop(key, None)
        else:
            document[key] = new


class Says(Lie):
    """Answers one step with given bytes. The engine carries the request out, unless `instead`."""

    def __init__(self, step: str, raw: bytes, *, instead: bool = False) -> None:
        self.step, self._raw, self._instead = step, raw, instead

    def request(self, request: Request, proxy: Proxy) -> None:
        if self._instead and request.step == self.step:
            raise ConnectionError

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if request.step == self.step:
            answer.raw = self._raw


class Hangs(Lie):
    """Never answers one step; before the engine gets the request, or after it was carried out."""

    def __init__(self, step: str, *, after: bool) -> None:
        self.step, self._after = step, after

    def request(self, request: Request, proxy: Proxy) -> None:
        if not self._after and request.step == self.step and self.armed:
            proxy.wait_for_the_end()
            raise ConnectionError

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if self._after and request.step == self.step and self.armed:
            proxy.wait_for_the_end()


class Late(Lie):
    """Answers one step this much later."""

    def __init__(self, step: str, seconds: float) -> None:
        self.step, self._seconds = step, seconds

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if request.step == self.step:
            time.sleep(self._seconds)


class AnotherContainer(Lie):
    """Makes the container, and names another one that was there before."""

    def __init__(self, other: str) -> None:
        self._other = other

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if request.step == "POST /containers/create" and answer.status == 201:
            answer.document = {**answer.document, "Id": self._other}


class Gone(Lie):
    """The engine disappears: from this step on no connection is answered."""

    def __init__(self, step: str) -> None:
        self.step, self._gone = step, False

    def request(self, request: Request, proxy: Proxy) -> None:
        self._gone = self._gone or request.step == self.step
        if self._gone:
            raise ConnectionError


class Proxy:
    """Serves until it is closed. `seen` holds the steps in their order."""

    def __init__(self, engine: Engine, folder: Path, lie: Lie) -> None:
        self.engine, self.lie = engine, lie
        self.socket = folder / "proxy.sock"
        self.seen: list[str] = []
        #: The names and ids of containers that were made through it.
        self.made: list[str] = []
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.socket))
        os.chmod(self.socket, 0o666)
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def wait_for_the_end(self) -> None:
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()
        self._listener.close()
        self.socket.unlink(missing_ok=True)

    def remove_what_was_made(self) -> list[str]:
        """Containers that are still there; they are removed, so that one test leaves none."""
        there = {each["Id"] for each in self.engine.containers()} & set(self.made)
        for each in there:
            with contextlib.suppress(EngineError):  # it is just being removed
                self.engine.call("DELETE", f"/containers/{each}", force=True)
        return sorted(there)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_BODY_WAIT_S)
            try:
                request = _read(connection)
                if request is None:
                    return
                self.seen.append(request.step)
                answer = Answer(200, b"{}")
                try:
                    self.lie.request(request, self)
                except ConnectionError:
                    self.lie.answer(request, answer, self)
                    if answer.raw is not None:
                        connection.sendall(answer.raw)
                    return
                answer = self._forward(request)
                if request.step == "POST /containers/create" and answer.status == 201:
                    self.made.append(answer.document["Id"])
                self.lie.answer(request, answer, self)
                connection.sendall(answer.raw if answer.raw is not None else _bytes(answer))
            except OSError:
                return  # the runner has given up

    def _forward(self, request: Request) -> Answer:
        upstream = socket.socket(socket.AF_UNIX)
        upstream.settimeout(_BODY_WAIT_S)
        connection = http.client.HTTPConnection("engine", timeout=_BODY_WAIT_S)
        connection.sock = upstream
        try:
            upstream.connect(str(self.engine.socket))
            headers = {"Content-Type": request.headers.get("content-type", "application/json")}
            connection.request(request.method, request.target, request.body or None, headers)
            with connection.getresponse() as found:
                kind = found.headers.get("Content-Type", "application/json")
                return Answer(found.status, found.read(), kind)
        finally:
            connection.close()


def _read(connection: socket.socket) -> Request | None:
    # Closed here: a socket stays open with each of its files.
    with connection.makefile("rb") as stream:
        first = stream.readline().decode("latin-1").split()
        if len(first) < 2:
            return None
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))
    return Request(first[0], first[1], headers, body)


def _bytes(answer: Answer) -> bytes:
    head = f"HTTP/1.1 {answer.status} Status\r\nContent-Type: {answer.kind}\r\n"
    if answer.status not in (204, 304):
        head += f"Content-Length: {len(answer.body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + answer.body
