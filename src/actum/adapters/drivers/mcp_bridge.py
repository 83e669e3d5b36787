"""Runs inside the sandbox: relays MCP messages between stdin/stdout and a network server.

One line in is ``{"headers": {...}, "message": {...}}``; one line out is one message of the server.
It knows the transport (Streamable HTTP, or WebSocket text frames) and not the messages. The
sandbox decides what it may reach: one socket per permitted name. It holds no secret that was not
given to it, follows no redirect, and ends at the end of stdin.

Standard library only: its interpreter has nothing else.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import struct
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha1
from typing import Any
from urllib.parse import urlsplit

WAIT_S = 600
#: The longest line that is relayed; the host stops reading before.
LONGEST = 8 * 1024 * 1024
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG, CONTINUED = 1, 8, 9, 10, 0


def say(line: bytes) -> None:
    sys.stdout.buffer.write(line.replace(b"\r", b"").replace(b"\n", b" ") + b"\n")
    sys.stdout.buffer.flush()


def fail(message: dict[str, Any], reason: str) -> None:
    """Report to the host that no answer can come, as an error of the protocol."""
    if "id" in message and "method" in message:
        error = {"code": -32000, "message": reason}
        say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())


def given_headers() -> dict[str, str]:
    """A bearer token, if the tool received one as a secret."""
    token = os.environ.get("MCP_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def orders() -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    for line in sys.stdin.buffer:
        order = json.loads(line)
        yield order["headers"], order["message"]


class Http:
    """Streamable HTTP: every message is a POST; answers are JSON or a stream of events."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.connection: http.client.HTTPConnection | None = None
        self.session: str | None = None

    def connect(self) -> http.client.HTTPConnection:
        host, port = self.parts.hostname or "", self.parts.port
        if self.parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=WAIT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=WAIT_S)

    def post(self, headers: dict[str, str], message: dict[str, Any]) -> http.client.HTTPResponse:
        body = json.dumps(message).encode()
        path = (self.parts.path or "/") + (f"?{self.parts.query}" if self.parts.query else "")
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **given_headers(),
            **headers,
        }
        if self.session:
            sent["Mcp-Session-Id"] = self.session
        kept = self.connection is not None
        while True:
            if self.connection is None:
                self.connection = self.connect()
            try:
                self.connection.request("POST", path, body, sent)
                return self.connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.connection.close()
                self.connection = None
                if not kept:
                    raise
                kept = False  # an idle connection was closed: nothing was answered on it

    def carry(self, headers: dict[str, str], message: dict[str, Any]) -> None:
        response = self.post(headers, message)
        self.session = response.getheader("Mcp-Session-Id", self.session)
        kind = (response.getheader("Content-Type") or "").split(";")[0].strip().lower()
        if kind == "text/event-stream" and response.status == 200:
            self.events(response, message)
            return
        body = response.read(LONGEST)
        if response.status == 202:  # accepted; the body is no answer
            return
        if kind == "application/json" and body.strip():
            say(body)
        elif response.status not in (200, 202, 204) or "id" in message:
            fail(message, f"HTTP status {response.status}")

    def events(self, response: http.client.HTTPResponse, message: dict[str, Any]) -> None:
        """Server-sent events until the answer to `message` arrives."""
        data: list[bytes] = []
        size = 0
        while True:
            line = response.readline(LONGEST)
            if not line:
                self.drop()
                return
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                size += len(line)
                if size > LONGEST:
                    sys.exit("an event is too long")
            elif not line and data:
                whole, data, size = b"\n".join(data), [], 0
                if not whole.strip():
                    continue
                say(whole)
                if answers(whole, message):
                    self.drop()
                    return

    def drop(self) -> None:
        """Close: the rest of a stream is of no use, and its connection cannot be reused."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def answers(text: bytes, message: dict[str, Any]) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return True
    return isinstance(found, dict) and "method" not in found and "id" in message


class WebSocket:
    """Text frames over one connection (RFC 6455), one message each."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "wss"
        port = parts.port or (443 if secure else 80)
        self.socket = socket.create_connection((parts.hostname, port), WAIT_S)
        if secure:
            context = ssl.create_default_context()
            self.socket = context.wrap_socket(self.socket, server_hostname=parts.hostname)
        key = b64encode(os.urandom(16)).decode()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mcp",
            *(f"{name}: {value}" for name, value in given_headers().items()),
        ]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.reader = self.socket.makefile("rb")
        status = self.reader.readline(4096).split()
        accept = ""
        while (line := self.reader.readline(8192).strip()) != b"":
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"sec-websocket-accept":
                accept = value.strip().decode()
        wanted = b64encode(sha1((key + GUID).encode()).digest()).decode()  # noqa: S324 -- the protocol's
        if status[1:2] != [b"101"] or accept != wanted:
            sys.exit("the server does not speak WebSocket")

    def carry(self, _headers: dict[str, str], message: dict[str, Any]) -> None:
        self.send(TEXT, json.dumps(message).encode())
        if "id" not in message or "method" not in message:
            return
        while True:
            text = self.receive()
            say(text)
            if answers(text, message):
                return

    def send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = os.urandom(4)
        repeated = mask * (size // 4 + 1)
        masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:size], "big")
        self.socket.sendall(head + mask + masked.to_bytes(size, "big"))

    def receive(self) -> bytes:
        whole = b""
        while True:
            first, second = self.exactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self.exactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self.exactly(8))
            if second & 0x80 or first & 0x70 or len(whole) + size > LONGEST:
                sys.exit("the server sent an invalid frame")
            payload, opcode = self.exactly(size), first & 0x0F
            if opcode == PING:
                self.send(PONG, payload)
            elif opcode == CLOSE:
                sys.exit("the server closed the connection")
            elif opcode in (TEXT, CONTINUED):
                whole += payload
                if first & 0x80:
                    return whole

    def exactly(self, count: int) -> bytes:
        data = self.reader.read(count)
        if len(data) < count:
            sys.exit("the server closed the connection")
        return data


def main(transport: str, url: str) -> None:
    try:
        wire: Http | WebSocket = Http(url) if transport == "http" else WebSocket(url)
    except (OSError, ssl.SSLError) as error:
        sys.exit(f"not reached: {type(error).__name__}")
    for headers, message in orders():
        try:
            wire.carry(headers, message)
        except (OSError, http.client.HTTPException) as error:
            sys.exit(f"not reached: {type(error).__name__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
