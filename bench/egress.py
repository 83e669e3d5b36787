"""The cost of the relay: a large download by name, and a thousand connections at once.

Server, relay and client share this machine's processors. Direct and relayed downloads take turns,
and the medians are compared, so that a busy moment hits both.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from actum.capture.model import Connection
from actum.contract.call import NetworkPolicy
from actum.contract.egress import plan_egress
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.relay import Relay

DOWNLOAD_BYTES = 1 << 30
ROUNDS = 3
CONNECTIONS = 1_000
_CHUNK = 1 << 18

# In processes of their own: server and client must not share the relay's interpreter lock.
_SERVER = f"""
import socket, threading
chunk = bytes({_CHUNK})
def serve(one):
    with one:
        wanted = int.from_bytes(one.recv(8), "big")
        if not wanted:
            one.sendall(b"x")
            one.recv(1)
        for _ in range(wanted // {_CHUNK}):
            one.sendall(chunk)
listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
print(listener.getsockname()[1], flush=True)
while True:
    one, _ = listener.accept()
    threading.Thread(target=serve, args=(one,), daemon=True).start()
"""
_DOWNLOAD = f"""
import socket, sys
buffer = memoryview(bytearray({_CHUNK}))
total = 0
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as made:
    made.sendall(({DOWNLOAD_BYTES}).to_bytes(8, "big"))
    while count := made.recv_into(buffer):
        total += count
assert total == {DOWNLOAD_BYTES}, total
"""
_CONNECT = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
held = []
for _ in range(count):
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(bytes(8))
    held.append(made)
assert all(made.recv(1) == b"x" for made in held)
"""


class _Session:
    """One execution's side of the relay; its socket is a plain listener on loopback."""

    def __init__(self, relay: Relay) -> None:
        policy = NetworkPolicy(
            enabled=True,
            allow=("peer.test:80",),
            deny=(),
            outbound=("tcp",),
            internal=("peer.test:80",),
        )
        doors = Doors(plan_egress(policy))
        self._session = relay.open(doors, lambda _address, _ports: None)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.port = int(listener.getsockname()[1])
        self._session.listen(doors.plan.endpoints, [listener.detach()])

    def close(self) -> tuple[Connection, ...]:
        return self._session.close()


def _python(program: str, *arguments: object) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *(str(word) for word in arguments)], check=True
    )
    return time.perf_counter() - began


def measure() -> dict[str, Any]:
    """Seconds and ratios; `ratio` is relayed throughput ÷ direct loopback throughput."""
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SERVER], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())
    relay = Relay({"peer.test:80": f"127.0.0.1:{port}"})
    try:
        direct, relayed = [], []
        for _ in range(ROUNDS):
            direct.append(_python(_DOWNLOAD, port))
            session = _Session(relay)
            relayed.append(_python(_DOWNLOAD, session.port))
            session.close()
        started = _python("pass")
        session = _Session(relay)
        at_once_s = _python(_CONNECT, session.port, CONNECTIONS)
        served = sum(not one.refused for one in session.close())
        at_once_direct_s = _python(_CONNECT, port, CONNECTIONS)
    finally:
        relay.close()
        server.kill()
        server.wait()
        server.stdout.close()
    # Both include the start of an interpreter, which is not part of the download.
    direct_s, relayed_s = (statistics.median(times) - started for times in (direct, relayed))
    return {
        "download_bytes": DOWNLOAD_BYTES,
        "direct_s": round(direct_s, 3),
        "relayed_s": round(relayed_s, 3),
        "ratio": round(direct_s / relayed_s, 3),
        "connections": CONNECTIONS,
        "connections_served": served,
        "connections_s": round(at_once_s, 3),
        "connections_direct_s": round(at_once_direct_s, 3),
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name}: {value}")
