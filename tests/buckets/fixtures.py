"""Fixtures: one server for all tests of a process, and a proxy in front of it for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from buckets.proxy import Proxy
from buckets.server import Server


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def proxy(bucket_server: Server) -> Iterator[Proxy]:
    proxy = Proxy(bucket_server.port)
    yield proxy
    proxy.stop()
