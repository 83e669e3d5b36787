"""The world outside, for the tour: a package index and a REST service, both on loopback.

A real agent has real ones. The package is made here, so that the tour needs no network.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import threading
import zipfile
from collections.abc import Iterator

WHEEL = "pricing-1.0-py3-none-any.whl"
ITEMS = {"7": {"id": "7", "name": "ink", "stock": 12}}


def wheel() -> bytes:
    """A package of one module."""
    info = "pricing-1.0.dist-info"
    files = {
        "pricing.py": "def with_tax(price):\n    return round(price * 1.2, 2)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pricing\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


PAGES = {
    "/simple/pricing/": ("text/html", f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode()),
    f"/files/{WHEEL}": ("application/octet-stream", wheel()),
    **{
        f"/v1/items/{key}": ("application/json", json.dumps(item).encode())
        for key, item in ITEMS.items()
    },
}


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, body = PAGES.get(self.path, ("text/plain", b""))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The address of the services, `127.0.0.1:PORT`, while they run."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


if __name__ == "__main__":
    with running() as place:
        print(place, flush=True)
        threading.Event().wait()
