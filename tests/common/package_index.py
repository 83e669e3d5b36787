"""A package index for pip and a registry for npm, on loopback, with packages that are made here."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import io
import json
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from typing import Any

WHEEL = "greeting-1.0-py3-none-any.whl"
TARBALL = "greeting-1.0.0.tgz"


def wheel() -> bytes:
    """The smallest wheel that pip installs: one module."""
    content = io.BytesIO()
    info = "greeting-1.0.dist-info"
    files = {
        "greeting.py": "def greet(name):\n    return f'hello {name}'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        archive.writestr(f"{info}/RECORD", record)
    return content.getvalue()


def tarball() -> bytes:
    """The smallest package that npm installs: one module."""
    content = io.BytesIO()
    files = {
        "package/package.json": json.dumps(
            {"name": "greeting", "version": "1.0.0", "main": "index.js"}
        ),
        "package/index.js": "module.exports = (name) => `hello ${name}`;\n",
    }
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


class _Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append((self.headers["Host"], self.path))
        kind, body = server.pages(self.headers["Host"]).get(self.path, ("text/plain", None))
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: Any) -> None:
        pass


class PackageIndex(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Index)
        self.scheme = "http"
        if context is not None:
            self.scheme = "https"
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
        self.seen: list[tuple[str, str]] = []
        self._wheel, self._tarball = wheel(), tarball()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def pages(self, host: str) -> dict[str, tuple[str, bytes]]:
        digest = hashlib.sha256(self._wheel).hexdigest()
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(self._tarball).digest()).decode()
        url = f"{self.scheme}://{host}/npm/greeting/-"
        version = {
            "name": "greeting",
            "version": "1.0.0",
            "dist": {"tarball": f"{url}/{TARBALL}", "integrity": integrity},
        }
        packument = {
            "name": "greeting",
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": version},
        }
        listing = f'<a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'
        return {
            "/simple/greeting/": ("text/html", listing.encode()),
            f"/files/{WHEEL}": ("application/octet-stream", self._wheel),
            "/npm/greeting": ("application/json", json.dumps(packument).encode()),
            f"/npm/greeting/-/{TARBALL}": ("application/octet-stream", self._tarball),
            "/data.json": ("application/json", b'{"answer": 42}\n'),
        }


@contextlib.contextmanager
def package_index(context: ssl.SSLContext | None = None) -> Iterator[PackageIndex]:
    with PackageIndex(context) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
