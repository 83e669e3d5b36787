"""Servers that are reached over the network: from inside the sandbox, by permitted names."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp import types
from mcp.server import Server, ServerRequestContext
from websockets.sync.server import ServerConnection, serve

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.records.audit import Decision
from actum.project import create
from actum.settings import load
from common.settings import add_settings

from .project import adapter, tool, write

pytestmark = pytest.mark.sandbox

_TOOL = types.Tool(
    name="echo",
    description="Say it back.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)


async def _list(
    _context: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_TOOL])


async def _call(
    _context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    text = str((params.arguments or {})["text"])
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


@contextlib.contextmanager
def library_server() -> Iterator[int]:
    """The MCP library's own server, over Streamable HTTP on loopback."""
    app = Server("real", version="1", on_list_tools=_list, on_call_tool=_call)
    from mcp.server.transport_security import TransportSecuritySettings

    settings = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    config = uvicorn.Config(
        app.streamable_http_app(transport_security=settings),
        host="127.0.0.1",
        port=0,
        log_level="critical",
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def reply(request: dict[str, Any]) -> dict[str, Any] | None:
    """A server of the handshake's time, in a few lines."""
    if "id" not in request:
        return None
    result: dict[str, Any]
    match request["method"]:
        case "initialize":
            result = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "small", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = request["params"]["arguments"]["text"]
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": request["id"], "error": error}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


@contextlib.contextmanager
def web_server(
    answer: Callable[[http.server.BaseHTTPRequestHandler, dict[str, Any]], None],
) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with contextlib.suppress(ConnectionError):
                answer(self, json.loads(body))

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def socket_server() -> Iterator[int]:
    def talk(connection: ServerConnection) -> None:
        for line in connection:
            connection.ping()
            told = reply(json.loads(line))
            if told is not None:
                connection.send(json.dumps(told))

    with serve(talk, "127.0.0.1", 0, subprotocols=["mcp"]) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def project(
    folder: Path, port: int, *, url: str, transport: str = "http", toml: str = ""
) -> Iterator[Runtime]:
    root = folder / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    described = tool(["echo"], servers={"small-server": {"url": url}})
    described["scope"] |= {"network": "on", "hosts": ["mcp.test:80"]}
    described["permissions"] |= {
        "network": {"outbound": ["http"]},
        "secrets": {"allowed": ["MCP_TOKEN"]},
    }
    network = {"enabled": True, "allow": ["mcp.test:80"]}
    spoken = adapter(["echo"], sandbox_override={"timeout_ms": 30_000, "network": network})
    spoken["interface"]["mcp"]["transport"] = transport
    write(root, described, spoken)
    add_settings(
        root,
        f'{toml}\n[egress.resolve]\n"mcp.test:80" = "127.0.0.1:{port}"\n'
        f'"other.test:80" = "127.0.0.1:{port}"\n',
    )
    (root / "work").mkdir()
    with Runtime(load(root / ".actum", {"LOGNAME": "test"})) as runtime:
        yield runtime


def ask(rt: Runtime, text: str = "over the wire", **more: Any) -> Result:
    """The call; what leads to this machine needs a person's word, and gets it here."""

    def once() -> Result:
        return rt.exec(
            "small:echo", cwd=rt.settings.root / "work", parameters={"text": text}, **more
        )

    result = once()
    if "APPROVAL_REQUIRED" in result.reason_codes:
        for violation in result.violations:
            rt.approvals.decide(violation.value, Decision.ALLOW, by="user:boss", why="a test")
        result = once()
    return result


def said(result: Result) -> str:
    assert result.result is not None, result.violations
    assert result.ok, (result.outcome, result.result)
    return str(json.loads(result.result.stdout)["content"][0]["text"])


@pytest.mark.req("000-108")
def test_a_server_of_the_library_is_reached_over_http(tmp_path: Path) -> None:
    with library_server() as port, project(tmp_path, port, url="http://mcp.test/mcp") as rt:
        first = ask(rt)
        assert said(first) == "over the wire"
        assert {(item.host, item.port) for item in first.egress} == {("mcp.test", 80)}
        assert all(not item.refused for item in first.egress)


def test_a_name_that_is_not_permitted_is_not_reached(tmp_path: Path) -> None:
    asked: list[object] = []
    with (
        web_server(lambda _handler, body: asked.append(body)) as port,
        project(tmp_path, port, url="http://other.test/mcp") as rt,
    ):
        result = ask(rt)
        assert result.outcome is Outcome.TOOL_ERROR
        assert asked == []


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    def redirect(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.send_response(307)
        handler.send_header("Location", "http://other.test/mcp")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with web_server(redirect) as port, project(tmp_path, port, url="http://mcp.test/mcp") as rt:
        result = ask(rt)
        assert result.outcome is Outcome.TOOL_ERROR
        assert {item.host for item in result.egress} == {"mcp.test"}


def test_an_endless_stream_of_events_is_ended(tmp_path: Path) -> None:
    def drip(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if body.get("method") != "tools/call":
            told = json.dumps(reply(body) or {}).encode()
            handler.send_response(200 if "id" in body else 202)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(told)))
            handler.end_headers()
            handler.wfile.write(told)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        while True:
            handler.wfile.write(f"data: {note}\n\n".encode())

    with web_server(drip) as port, project(tmp_path, port, url="http://mcp.test/mcp") as rt:
        assert ask(rt).outcome is Outcome.RESOURCE_KILLED


def test_websocket_is_off_unless_it_is_enabled(tmp_path: Path) -> None:
    with (
        socket_server() as port,
        project(tmp_path, port, url="ws://mcp.test/", transport="websocket") as rt,
    ):
        assert ask(rt).reason_codes == ("TRANSPORT_DISABLED",)


@pytest.mark.req("000-108")
def test_a_server_is_reached_over_websocket(tmp_path: Path) -> None:
    toml = "\n[mcp]\nwebsocket = true\n"
    with (
        socket_server() as port,
        project(tmp_path, port, url="ws://mcp.test/", transport="websocket", toml=toml) as rt,
    ):
        long = "x" * 70_000
        assert said(ask(rt)) == "over the wire"
        assert said(ask(rt, long)) == long


def test_a_token_goes_along_as_a_bearer_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: set[str | None] = set()

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        heard.add(handler.headers["Authorization"])
        told = json.dumps(reply(body) or {}).encode()
        handler.send_response(200 if "id" in body else 202)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(told)))
        handler.end_headers()
        handler.wfile.write(told)

    monkeypatch.setenv("ACTUM_TEST_TOKEN", "a-token-for-this-test")
    toml = '\n[secrets]\nMCP_TOKEN = { env = "ACTUM_TEST_TOKEN" }\n'
    with (
        web_server(answer) as port,
        project(tmp_path, port, url="http://mcp.test/mcp", toml=toml) as rt,
    ):
        assert said(ask(rt)) == "over the wire"
        assert heard == {None}
        heard.clear()
        assert said(ask(rt, set={"inputs.secrets": {"MCP_TOKEN": "env"}})) == "over the wire"
        assert heard == {"Bearer a-token-for-this-test"}
