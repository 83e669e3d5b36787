"""What a service can do to the driver that calls it: every answer ends as one JSON document.

The driver runs as in a sandbox, `python3 -I -S` with its order on stdin, against a socket that says
whatever a test wants.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actum.adapters.drivers import http_call

SECRET = "client-secret-of-the-test"
Answer = Callable[[int], bytes]  #: of a server at this port


def _reply(status: int, *headers: str, body: bytes = b"{}") -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _asked(connection: socket.socket) -> bytes:
    """One request, to its end: to close before that would reset the answer."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += connection.recv(65_536)
    head, _, body = heard.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < size:
        body += connection.recv(65_536)
    return head


@contextmanager
def _serving(answers: list[Answer]) -> Iterator[tuple[int, list[bytes]]]:
    """One connection for each answer; then the port refuses. What was asked, in order."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    heard.append(_asked(connection))
                    connection.sendall(answer(port))
            server.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield port, heard
        thread.join(60)
        assert not thread.is_alive()


def _called(
    tmp_path: Path, port: int, *, method: str = "GET", auth: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of the driver."""
    order = {
        "method": method,
        "url": f"http://127.0.0.1:{port}/first",
        "headers": {},
        "body": None,
        "auth": auth or {"kind": "none"},
        "hosts": ["127.0.0.1"],
        "max_bytes": 1_000_000,
    }
    secret, none_held = _pipe(SECRET.encode()), _pipe(b"")
    done = subprocess.run(
        ["python3", "-I", "-S", http_call.__file__],
        input=json.dumps(order).encode(),
        capture_output=True,
        pass_fds=(secret, none_held),
        env={"S": str(secret), "H": str(none_held), "ACTUM_ARTIFACTS": str(tmp_path)},
        check=False,
    )
    os.close(secret)
    os.close(none_held)
    assert done.stderr == b""
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def _pipe(content: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


@pytest.mark.parametrize(
    "headers",
    [
        ("Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT",),
        ("Retry-After: Mon, 01 Jan 2030 00:00:00 +99999999999999",),
        ("Retry-After: \xb2",),
    ],
)
def test_a_moment_that_is_none_is_no_wait(tmp_path: Path, headers: tuple[str, ...]) -> None:
    with _serving([lambda _: _reply(503, *headers)]) as (port, _):
        code, answer = _called(tmp_path, port)
    assert (code, answer["status"], answer["retry_after_s"]) == (1, 503, None)


def test_a_clock_that_is_none_is_ours_instead(tmp_path: Path) -> None:
    headers = "Retry-After: Mon, 01 Jan 2010 00:00:00 GMT", f"Date: Mon, 01 Jan {'9' * 30} 0:0:0"
    with _serving([lambda _: _reply(503, *headers)]) as (port, _):
        code, answer = _called(tmp_path, port)
    assert (code, answer["retry_after_s"]) == (1, 0.0)


def _oauth(port: int) -> dict[str, Any]:
    return {
        "kind": "oauth",
        "descriptor": "S",
        "held": "H",
        "client_id": "c",
        "scope": "",
        "keep_in": "token",
        "token_url": f"http://127.0.0.1:{port}/token",
    }


def test_a_token_of_endless_depth_is_no_token(tmp_path: Path) -> None:
    with _serving([lambda _: _reply(200, body=b"[" * 200_000)]) as (port, _):
        code, answer = _called(tmp_path, port, auth=_oauth(port))
    assert (code, answer["error"]["kind"]) == (3, "refused")
    assert "no usable access_token" in answer["error"]["message"]


def test_a_token_that_is_one_is_used(tmp_path: Path) -> None:
    token = json.dumps({"access_token": "t" * 20, "expires_in": 60}).encode()
    answers: list[Answer] = [lambda _: _reply(200, body=token), lambda _: _reply(200)]
    with _serving(answers) as (port, heard):
        code, _ = _called(tmp_path, port, auth=_oauth(port))
    assert code == 0
    assert b"Authorization: Bearer " + b"t" * 20 in heard[1]


def test_a_chunk_of_less_than_nothing_is_a_failure_of_the_transport(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with _serving([lambda _: head + b"-5\r\nabc"]) as (port, _):
        code, answer = _called(tmp_path, port)
    assert (code, answer["error"]["kind"], answer["error"]["sent"]) == (2, "transport", True)


@pytest.mark.parametrize(("method", "status"), [("POST", 307), ("POST", 303), ("GET", 302)])
def test_who_leads_elsewhere_has_had_the_call(tmp_path: Path, method: str, status: int) -> None:
    """Behind the redirect nobody answers. The first host did, and may have done what was asked, so
    the call must not count as one that was never sent."""

    def elsewhere(port: int) -> bytes:
        return _reply(status, f"Location: http://127.0.0.1:{port}/second")

    with _serving([elsewhere]) as (port, heard):
        code, answer = _called(tmp_path, port, method=method)
    assert len(heard) == 1
    assert (code, answer["error"]["kind"], answer["error"]["sent"]) == (2, "transport", True)


def test_who_was_never_reached_has_not_had_the_call(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code, answer = _called(tmp_path, port, method="POST")
    assert (code, answer["error"]["kind"], answer["error"]["sent"]) == (2, "transport", False)
