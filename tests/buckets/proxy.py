"""A proxy in front of a store that does to chosen requests what networks and servers do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: What happens to a request.
PASS, WRONG, CUT, HANG, ERROR, SLOW = "pass", "wrong", "cut", "hang", "error", "slow"


class Proxy:
    """`behave` decides about a request: method, path, and how often this pair was asked before."""

    def __init__(self, port: int) -> None:
        self.behave: Callable[[str, str, int], str] = lambda _method, _path, _before: PASS
        self.asked: list[tuple[str, str]] = []
        self.ended = threading.Event()
        self._server = _Listener(("127.0.0.1", 0), _handler(self, port))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self, method: str, part: str = "") -> int:
        return sum(asked == method and part in path for asked, path in self.asked)

    def stop(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_request: object) -> None:
        """A client that leaves is what these tests are about."""


def _handler(proxy: Proxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: object) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, TimeoutError):
                self.close_connection = True

        def _relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = (self.command, self.path)
            how = proxy.behave(*asked, proxy.asked.count(asked))
            proxy.asked.append(asked)
            if how == HANG:
                proxy.ended.wait(120)
                self.close_connection = True
                return
            if how == ERROR:
                self._answer(500, [], b"<Error><Code>InternalError</Code></Error>")
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
                status, kept = answer.status, answer.getheaders()
            finally:
                upstream.close()
            if how == WRONG:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self._answer(status, kept, content, how)

        def _answer(
            self, status: int, headers: list[tuple[str, str]], content: bytes, how: str = PASS
        ) -> None:
            self.send_response_only(status)
            size = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    size = value
                elif name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", size)
            self.end_headers()
            if self.command == "HEAD":
                return
            if how == CUT:
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                self.close_connection = True
                return
            if how == SLOW:
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if proxy.ended.wait(0.3):
                        break
                self.close_connection = True
                return
            self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _relay  # noqa: N815 -- as http.server calls them

    return Handler
