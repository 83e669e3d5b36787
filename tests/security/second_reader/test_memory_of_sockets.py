"""Memory that a tool takes without its own pages growing."""

from __future__ import annotations

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_FILL = """
import socket
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(400)
held, sent = [], 0
while len(held) < 400 and sent < 300 << 20:
    client = socket.socket()
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    held += [client, accepted]
    client.setblocking(False)
    try:
        while True:
            sent += client.send(bytes(65_536))
    except BlockingIOError:
        pass
print(sent >> 20)
"""


@pytest.mark.req("000-12")
def test_buffers_of_sockets_are_limited_with_the_memory(jail: Jail) -> None:
    """In version 1 of the cgroups they are no part of the memory limit."""
    assert int(jail.outside_python(_FILL)) >= 300
    result = jail.python(_FILL, limits={"sandbox.memory_mb": 64})
    if result.result is not None and result.result.exit_code == 0:
        assert int(jail.said(result)) <= 80
    else:
        assert result.outcome == "RESOURCE_KILLED"
