"""One S3-compatible server in a process of its own, on a free port of the loopback interface.

moto keeps objects in memory and accepts any credentials. It wants bucket names of three letters or
more. The kernel ends the server when the process that started it dies, however that happens.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import urllib.request

KEY_ID, KEY = "test-key-id", "test-key"

_PROGRAM = """
import logging
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
application = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, application, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Server:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _PROGRAM],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, "the server of moto did not start"
        self.port = int(port)
        self._numbers = itertools.count(1)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{next(self._numbers)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        return name

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
